"""How many GPUs the machine should have."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodetopo.components.gpus.expected import ExpectedGpuCount, expected_here
from nodetopo.kernel.settings.declare import Settings
from nodetopo.machines.bundled import machine
from nodetopo.model.operator_labels import INSTANCE_TYPE
from nodetopo.model.snapshot import Snapshot

DGX = machine("dgx-h100")
SETTINGS = Settings(node_name="n")
FEWER = replace(DGX, gpus=DGX.gpus[:7], pci_gpus=(DGX.pci_gpus or ())[:7])


def expected(counter: ExpectedGpuCount, snapshot: Snapshot) -> int | None:
    found = counter.put_into(snapshot).expected_gpus
    return None if found is None else found.count


def test_the_most_that_the_machine_has_had_outlives_the_process(tmp_path: Path) -> None:
    state = tmp_path / "health.json"
    assert expected(ExpectedGpuCount(SETTINGS, state), FEWER) == 7
    assert expected(ExpectedGpuCount(SETTINGS, state), DGX) == 8
    again = ExpectedGpuCount(SETTINGS, state)
    assert expected(again, FEWER) == 8
    here = expected_here(SETTINGS, state)
    assert here is not None
    assert here.count == 8


def test_a_setting_names_another_place(tmp_path: Path) -> None:
    settings = SETTINGS.but(gpu_count_file=tmp_path / "disk" / "count.json")
    state = tmp_path / "run" / "health.json"
    assert expected(ExpectedGpuCount(settings, state), DGX) == 8
    assert expected(ExpectedGpuCount(settings, tmp_path / "boot" / "health.json"), FEWER) == 8
    assert not (tmp_path / "run").exists()


def test_removing_the_file_accepts_what_is_there(tmp_path: Path) -> None:
    counter = ExpectedGpuCount(SETTINGS, tmp_path / "health.json")
    assert expected(counter, DGX) == 8
    (tmp_path / "gpu-count.json").unlink()
    assert expected(counter, FEWER) == 7


def test_another_machine_begins_again(tmp_path: Path) -> None:
    state = tmp_path / "health.json"
    assert expected(ExpectedGpuCount(SETTINGS, state), DGX) == 8
    other = replace(FEWER, product_name="another")
    assert expected(ExpectedGpuCount(SETTINGS, state), other) == 7


@pytest.mark.parametrize("text", ["", "{", '{"schema": "x", "gpus": 9}', '{"gpus": -1}'])
def test_a_file_that_is_no_such_document_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpu-count.json").write_text(text)
    assert expected(ExpectedGpuCount(SETTINGS, tmp_path / "health.json"), FEWER) == 7


def test_a_machine_of_which_pci_was_never_read_has_no_expectation() -> None:
    counter = ExpectedGpuCount(SETTINGS, None)
    assert expected(counter, replace(DGX, pci_gpus=None)) is None
    assert expected(counter, DGX) == 8
    assert expected(counter, FEWER) == 8


def test_a_setting_decides_alone() -> None:
    counter = ExpectedGpuCount(SETTINGS.but(expect_gpus=4), None)
    counter.note({INSTANCE_TYPE: "a2-megagpu-16g"})
    found = counter.put_into(DGX).expected_gpus
    assert found is not None
    assert (found.count, found.is_set) == (4, True)


def test_the_instance_type_of_the_node_says_more_than_a_poor_past() -> None:
    counter = ExpectedGpuCount(SETTINGS, None)
    counter.note({INSTANCE_TYPE: "a2-megagpu-16g"})
    assert expected(counter, DGX) == 16
