"""GPUs that a new process remembers: of this boot, and never because of a bad file."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.state_files import KnownGpus
from nodetopo.machines.bundled import machine

GPUS = machine("dgx-h100").gpus


def test_what_a_device_is_made_from_is_remembered_in_the_same_boot(tmp_path: Path) -> None:
    path = tmp_path / "run" / "gpus.json"
    KnownGpus(path, "boot-1").save(GPUS)
    found = KnownGpus(path, "boot-1").load()

    facts = [(gpu.id, gpu.minor, gpu.pci, gpu.product, gpu.numa_node, gpu.mig) for gpu in GPUS]
    assert facts == [
        (gpu.id, gpu.minor, gpu.pci, gpu.product, gpu.numa_node, gpu.mig) for gpu in found
    ]


def test_another_boot_may_have_other_gpus(tmp_path: Path) -> None:
    KnownGpus(tmp_path / "gpus.json", "boot-1").save(GPUS)
    assert KnownGpus(tmp_path / "gpus.json", "boot-2").load() == ()


def test_what_changes_from_scan_to_scan_is_no_reason_to_write(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    known = KnownGpus(path, "boot-1")
    known.save(GPUS)
    before = path.stat().st_ino
    known.save([replace(gpu, persistence=None, recovery_action=1) for gpu in GPUS])
    assert path.stat().st_ino == before


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 1}', "[" * 100_000, "\0"])
def test_a_file_that_is_no_such_document_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(text)
    assert KnownGpus(path, "boot-1").load() == ()


def test_a_place_that_cannot_be_written_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where a directory should be")
    known = KnownGpus(tmp_path / "run" / "gpus.json", "boot-1")
    with capture_logs() as logs:
        known.save(GPUS)
        known.save(GPUS)
    assert [line["event"] for line in logs] == ["state not saved"]
