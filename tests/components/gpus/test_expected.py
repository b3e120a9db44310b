"""How many GPUs the machine should have."""

import errno
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.components.gpus.expected import ExpectedGpuCount, expected_here
from nodetopo.kernel.settings.declare import Settings
from nodetopo.machines.bundled import machine
from nodetopo.model.operator_labels import INSTANCE_TYPE
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import result
from tests.failing_files import failing

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


DAMAGED = ["", "{", '{"schema": "x", "gpus": 9}', '{"gpus": -1}']
NEWER = '{"schema": "nodetopo-gpu-count/v2", "release": "9.1.0", "gpus": 8}'


def verdict(snapshot: Snapshot) -> Verdict:
    """Return what the check of the number says."""
    return result("PCI-010", snapshot).verdict


@pytest.mark.parametrize("text", [*DAMAGED, NEWER])
def test_of_a_file_that_is_not_understood_the_count_is_not_known(tmp_path: Path, text: str) -> None:
    path, state = tmp_path / "gpu-count.json", tmp_path / "health.json"
    path.write_text(text)
    for _ in range(2):  # a restart decides nothing
        counter = ExpectedGpuCount(SETTINGS, state)
        assert verdict(counter.put_into(FEWER)) is Verdict.UNKNOWN
        assert verdict(replace(FEWER, expected_gpus=expected_here(SETTINGS, state))) is (
            Verdict.UNKNOWN
        )
        assert verdict(counter.put_into(FEWER)) is Verdict.UNKNOWN
    if text == NEWER:
        assert path.read_text() == text
        assert list(tmp_path.iterdir()) == [path]
    else:
        assert (tmp_path / "gpu-count.json.bad").read_text() == text


@pytest.mark.parametrize("text", [*DAMAGED, NEWER])
def test_the_damage_is_reported_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpu-count.json").write_text(text)
    counter = ExpectedGpuCount(SETTINGS, tmp_path / "health.json")
    counter.put_into(FEWER)
    counter.put_into(FEWER)
    (notice,) = counter.notices()
    assert notice.reason == "StateFileUnusable"
    assert "number of GPUs that the machine should have" in notice.message
    assert ("release 9.1.0" in notice.message) is (text == NEWER)


@pytest.mark.parametrize("text", [*DAMAGED, NEWER])
def test_a_larger_count_decides(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpu-count.json").write_text(text)
    state = tmp_path / "health.json"
    ExpectedGpuCount(SETTINGS, state).put_into(replace(FEWER, gpus=(), pci_gpus=None))
    if text != NEWER:  # whose count is not kept over a restart
        ExpectedGpuCount(SETTINGS, state).put_into(FEWER)
    counter = ExpectedGpuCount(SETTINGS, state)
    counter.put_into(FEWER)
    assert verdict(counter.put_into(DGX)) is Verdict.PASS
    assert verdict(counter.put_into(FEWER)) is Verdict.FAIL


@pytest.mark.parametrize("text", [*DAMAGED, NEWER])
def test_a_person_decides(tmp_path: Path, text: str) -> None:
    path, state = tmp_path / "gpu-count.json", tmp_path / "health.json"
    path.write_text(text)
    counter = ExpectedGpuCount(SETTINGS, state)
    counter.put_into(FEWER)
    path.unlink()
    assert verdict(counter.put_into(FEWER)) is Verdict.PASS
    assert verdict(ExpectedGpuCount(SETTINGS, state).put_into(FEWER)) is Verdict.PASS
    path.write_text(text)
    setting = ExpectedGpuCount(SETTINGS.but(expect_gpus=8), state)
    assert verdict(setting.put_into(FEWER)) is Verdict.FAIL


@pytest.mark.parametrize("text", DAMAGED)
def test_a_running_daemon_knows_the_count_and_writes_it_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpu-count.json"
    counter = ExpectedGpuCount(SETTINGS, tmp_path / "health.json")
    counter.put_into(DGX)
    path.write_text(text)
    assert verdict(counter.put_into(FEWER)) is Verdict.FAIL
    assert expected(ExpectedGpuCount(SETTINGS, tmp_path / "health.json"), FEWER) == 8


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_file_that_cannot_be_read_is_not_absent(tmp_path: Path, code: int) -> None:
    state = tmp_path / "health.json"
    ExpectedGpuCount(SETTINGS, state).put_into(DGX)
    with failing(tmp_path, code, reads=True, writes=False):
        counter = ExpectedGpuCount(SETTINGS, state)
        assert verdict(counter.put_into(FEWER)) is Verdict.UNKNOWN
    assert verdict(counter.put_into(FEWER)) is Verdict.FAIL


def test_a_count_that_cannot_be_saved_is_kept_in_memory(tmp_path: Path) -> None:
    counter = ExpectedGpuCount(SETTINGS, tmp_path / "health.json")
    with failing(tmp_path, errno.EROFS, reads=False, writes=True):
        counter.put_into(DGX)
        assert verdict(counter.put_into(FEWER)) is Verdict.FAIL


def test_the_instance_type_knows_a_count_that_is_lost(tmp_path: Path) -> None:
    (tmp_path / "gpu-count.json").write_text("{")
    counter = ExpectedGpuCount(SETTINGS, tmp_path / "health.json")
    counter.note({INSTANCE_TYPE: "a3-highgpu-8g"})
    assert verdict(counter.put_into(DGX)) is Verdict.PASS
    assert verdict(counter.put_into(FEWER)) is Verdict.FAIL


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
