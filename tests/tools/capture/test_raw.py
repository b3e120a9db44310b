"""A raw capture plays the node that it was taken from."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodetopo.model.codec import encode
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.tools.capture.archive import unpack
from nodetopo.tools.capture.raw import RawCapture, archive_text, capture_raw
from nodetopo.tools.capture.scrub_files import scrub_raw
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import SHAPES
from tests.probes.nvml import nvml_pair

CAPTURED: dict[str, RawCapture] = {}
SCRUBBED: dict[str, RawCapture] = {}  # by the text of NVML's answers
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def supervisor(fake_nvml_library: Path) -> Iterator[NvmlSupervisor]:
    """One on whatever machine ``NODETOPO_FAKE_NVML`` names when it is first asked."""
    made = NvmlSupervisor(fake_nvml_library)
    yield made
    made.close()


@pytest.fixture
def replay(
    fake_nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[RawCapture], Snapshot]:
    """Return a function that writes a capture, and discovers the node that it plays."""

    def found(raw: RawCapture) -> Snapshot:
        root = tmp_path / "replayed"
        unpack(archive_text(raw), root)
        machine = FakeNvml(tmp_path / "machine", raw.nvml)
        monkeypatch.setenv("NODETOPO_FAKE_NVML", str(machine.directory))
        again = NvmlSupervisor(fake_nvml_library)
        try:
            return discover(roots(root), again.scan, node=raw.snapshot.node, captured_at=NOW)
        finally:
            again.close()

    return found


def roots(host: Path) -> Roots:
    return Roots(sysfs=host / "sys", procfs=host / "proc", host=host)


@pytest.fixture(params=SHAPES, ids=lambda path: path.name)
def captured(
    request: pytest.FixtureRequest,
    unpacked: Callable[[str], Path],
    supervisor: NvmlSupervisor,
    monkeypatch: pytest.MonkeyPatch,
) -> RawCapture:
    """The raw capture of each machine in :data:`SHAPES`, made once."""
    node_dir: Path = request.param
    if node_dir.name not in CAPTURED:
        monkeypatch.setenv("NODETOPO_FAKE_NVML", str(node_dir))
        host = roots(unpacked(node_dir.name))
        CAPTURED[node_dir.name] = capture_raw(host, supervisor, node="gpu-node-07", captured_at=NOW)
    return CAPTURED[node_dir.name]


@pytest.fixture
def scrubbed(captured: RawCapture) -> RawCapture:
    """The scrubbed capture, made once."""
    if captured.nvml not in SCRUBBED:
        SCRUBBED[captured.nvml] = scrub_raw(captured)
    return SCRUBBED[captured.nvml]


def test_a_replayed_capture_gives_its_snapshot(
    captured: RawCapture, replay: Callable[[RawCapture], Snapshot]
) -> None:
    assert encode(replay(captured)) == encode(captured.snapshot)


def test_a_replayed_scrubbed_capture_gives_its_scrubbed_snapshot(
    scrubbed: RawCapture, replay: Callable[[RawCapture], Snapshot]
) -> None:
    assert encode(replay(scrubbed)) == encode(scrubbed.snapshot)


def test_nothing_that_identifies_the_machine_is_left(
    captured: RawCapture, scrubbed: RawCapture
) -> None:
    texts = scrubbed.nvml + archive_text(scrubbed) + encode(scrubbed.snapshot)
    known = identifiers(captured.snapshot)
    assert len(known) > len(captured.snapshot.gpus)
    assert [name for name in known if name in texts] == []


def test_equal_identifiers_stay_equal(captured: RawCapture, scrubbed: RawCapture) -> None:
    before, after = captured.snapshot, scrubbed.snapshot

    def groups(snapshot: Snapshot) -> list[int]:
        guids = [hca.sys_image_guid for hca in snapshot.hcas or ()]
        return [guids.index(guid) for guid in guids]

    assert groups(after) == groups(before)


def test_a_gpu_that_is_lost_and_one_that_is_partitioned_are_found_again(
    tmp_path: Path,
    supervisor: NvmlSupervisor,
    replay: Callable[[RawCapture], Snapshot],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeNvml(tmp_path / "pair", nvml_pair.ANSWERS)
    fake.fail("lost 1")
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(fake.directory))
    host = tmp_path / "host"
    unpack("sys/\nproc/\n", host)
    raw = capture_raw(roots(host), supervisor, node="gpu-node-07", captured_at=NOW)
    assert (raw.snapshot.gpus[1].is_lost, len(raw.snapshot.gpus[0].mig.instances)) == (True, 2)  # type: ignore[union-attr]
    assert encode(replay(raw)) == encode(raw.snapshot)


def test_other_processes_stay_out(
    tmp_path: Path, supervisor: NvmlSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(tmp_path / "none"))
    processes = {
        "7": "/usr/bin/kubelet\0--config=/k.yaml\0--token=s3cr3t\0",
        "8": "psql\0--password=pw\0",
    }
    for pid, line in processes.items():
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cmdline").write_text(line)
    raw = capture_raw(roots(tmp_path), supervisor, node="n", captured_at=NOW)
    kept = {entry.path: entry.content for entry in raw.entries if entry.content}
    assert kept == {"proc/7/cmdline": processes["7"].encode()}
    assert "s3cr3t" not in archive_text(scrub_raw(raw))
    assert raw.failure is not None


def identifiers(snapshot: Snapshot) -> list[str]:
    """Return all that tells this node from one of the same kind."""
    hcas = (*(snapshot.hcas or ()), *(snapshot.management_hcas or ()))
    found = [snapshot.node]
    found += [value for gpu in snapshot.gpus for value in (gpu.uuid, gpu.serial)]
    found += [i.uuid for gpu in snapshot.gpus if gpu.mig for i in gpu.mig.instances]
    found += [value for hca in hcas for value in (hca.node_guid, hca.sys_image_guid)]
    found += [gid.gid for hca in hcas for port in hca.ports for gid in port.gids]
    return [name for name in found if name]
