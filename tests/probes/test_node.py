"""Periodic scans: cheap, and as good as whole ones."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.node import NodeReader
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.probes.sysfs import changes
from nodetopo.probes.sysfs.host import Host
from nodetopo.tools.capture.archive import unpack
from tests.budget import cases
from tests.conftest import NODES
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.fake import FakeNvml
from tests.probes.clock import Clock
from tests.probes.conftest import SHAPES
from tests.probes.nvml.event_log import EventLog, xid

SHAPE = "h100x8-nvswitch-2numa-8cx7"
ANSWERS = (NODES / SHAPE / "nvml.txt").read_text("utf-8")


PORT = "sys/class/infiniband/mlx5_0/ports/1"
GPU = "sys/bus/pci/devices/0000:1b:00.0"
CONFIG = "var/lib/kubelet/config.yaml"
HEADER = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


class Node(Struct, frozen=True):
    """A machine that a test may change, seen by a daemon and by a newcomer."""

    host: Path
    nvml: FakeNvml
    clock: Clock
    reader: NodeReader
    newcomer: NvmlSupervisor

    def read(self) -> Snapshot:
        """Scan as the daemon does."""
        return replace(self.reader.read(), captured_at=None)

    def whole(self) -> Snapshot:
        """Scan as someone does who has never seen the node."""
        return discover(roots(self.host), self.newcomer.scan, node="n", captured_at=None)

    def cost(self) -> tuple[int, int, bool]:
        """Return NVML calls, file reads and wholeness of the last scan."""
        cost = self.reader.last_cost
        assert cost is not None
        return cost.nvml_calls, cost.file_reads, cost.is_whole

    def write(self, path: str, text: str) -> None:
        """Replace a file of the host."""
        place = self.host / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def roots(host: Path) -> Roots:
    return Roots(sysfs=host / "sys", procfs=host / "proc", host=host)


@pytest.fixture(scope="module")
def shared_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a DGX H100; a test undoes what it changes."""
    host = tmp_path_factory.mktemp("host")
    unpack((NODES / SHAPE / "sysfs.txt").read_text("utf-8"), host / "root")
    return host / "root"


@pytest.fixture
def start(
    tmp_path: Path, fake_nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path], Node]]:
    """Return a function that scans the machine with these files once."""
    started: list[Node] = []

    def scan(host: Path) -> Node:
        nvml, clock = FakeNvml(tmp_path / "nvml", ANSWERS), Clock()
        monkeypatch.setenv("NODETOPO_FAKE_NVML", str(nvml.directory))
        reader = NodeReader(roots(host), node="n", nvml_library=fake_nvml_library, clock=clock)
        started.append(Node(host, nvml, clock, reader, NvmlSupervisor(fake_nvml_library)))
        started[0].read()
        started[0].newcomer.scan()  # both know what a GPU was before it is lost
        return started[0]

    yield scan
    for each in started:
        each.reader.close()
        each.newcomer.close()


@pytest.fixture
def node(start: Callable[[Path], Node], shared_host: Path) -> Node:
    """A DGX H100 that has been scanned once."""
    return start(shared_host)


@pytest.fixture
def own_node(start: Callable[[Path], Node], tmp_path: Path) -> Node:
    """The same with files of its own, which the test may change as it likes."""
    unpack((NODES / SHAPE / "sysfs.txt").read_text("utf-8"), tmp_path / "root")
    return start(tmp_path / "root")


def test_a_periodic_scan_of_an_unchanged_node_costs_a_fraction(node: Node) -> None:
    whole = node.cost()
    assert (node.read(), node.read()) == (node.whole(), node.whole())
    periodic = node.cost()
    assert (whole[2], periodic[2]) == (True, False)
    assert periodic[0] * 4 <= whole[0]
    assert periodic[1] * 6 <= whole[1]


def test_after_an_hour_and_on_request_everything_is_read(node: Node) -> None:
    node.write(f"{GPU}/numa_node", "1\n")
    assert node.read() != node.whole()
    node.clock.now += changes.REREAD_S
    assert (node.read(), node.cost()[2]) == (node.whole(), True)
    node.write(f"{GPU}/numa_node", "0\n")
    node.reader.reread()
    assert (node.read(), node.cost()[2]) == (node.whole(), True)


def test_while_nvml_is_silent_its_part_is_the_last_known(node: Node) -> None:
    before = node.read()
    node.nvml.fail("code nvmlInitWithFlags 9")
    after = node.read()
    assert after.gpus == before.gpus
    assert [issue.probe for issue in after.issues] == ["nvml"]
    assert node.cost()[0] == 0


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("code * 999", NvmlStatus(trouble=NvmlTrouble.REFUSED, code=999, failures=1)),
        ("crash nvmlDeviceGetUUID", NvmlStatus(trouble=NvmlTrouble.DIED, failures=1)),
    ],
)
def test_without_an_answer_the_gpus_stay_and_pci_is_counted(
    node: Node, fault: str, status: NvmlStatus
) -> None:
    before = node.read()
    node.nvml.fail(fault)
    _unplug(node)
    after = node.read()
    assert [gpu.uuid for gpu in after.gpus] == [gpu.uuid for gpu in before.gpus]
    assert before.pci_gpus == tuple(gpu.pci for gpu in before.gpus)
    assert after.pci_gpus == before.pci_gpus[:-1]
    found = node.reader.nvml_status
    assert found == replace(status, cause=found.cause, cure=found.cure)
    assert found.cure
    assert found.cause == after.issues[0].reason
    _plug(node)


def test_a_gpu_that_answers_almost_nothing_stays_the_same_device(node: Node) -> None:
    before = node.read()
    uuid = f"nvmlDeviceGetUUID 3 = 0 {before.gpus[3].uuid}"
    node.nvml.answer(ANSWERS.replace(uuid, "nvmlDeviceGetUUID 3 = 999"))
    after = node.read()
    assert after.gpus == before.gpus
    assert [issue.subject for issue in after.issues] == ["GPU3 nvmlDeviceGetUUID"]


def test_pci_is_counted_where_nvml_never_answered(node: Node) -> None:
    known = node.read().pci_gpus
    reader = NodeReader(roots(node.host), node="n", nvml_library=node.host / "no-driver")
    snapshot = reader.read()
    assert (snapshot.gpus, snapshot.pci_gpus) == ((), known)
    assert reader.nvml_status.trouble is NvmlTrouble.NO_LIBRARY


def test_the_rest_of_the_node_is_read_while_nvml_is_closed(node: Node) -> None:
    known = node.read()
    node.reader.release()
    node.nvml.fail("code * 999")
    closed = node.reader.read_closed("closed by request")
    assert (closed.gpus, closed.pci_gpus) == ((), known.pci_gpus)
    assert (closed.hcas, closed.node) == (known.hcas, "n")
    assert [(issue.probe, issue.reason) for issue in closed.issues] == [
        ("nvml", "closed by request"),
        ("pcie", "NVML was not asked about them"),
    ]


def test_a_gpu_that_is_given_to_the_driver_has_everything_read(node: Node) -> None:
    node.read()
    assert node.cost()[2] is False
    gpus = node.host / "proc/driver/nvidia/gpus"
    (gpus / "0000:1b:00.0").mkdir(parents=True)
    node.read()
    assert node.cost()[2] is True
    shutil.rmtree(gpus)


def test_events_of_the_node_are_handed_on(
    tmp_path: Path, fake_nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml, log = FakeNvml(tmp_path / "nvml", ANSWERS), EventLog()
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(nvml.directory))
    reader = NodeReader(roots(tmp_path), node="n", nvml_library=fake_nvml_library, on_events=log)
    gpus = reader.read().gpus
    assert eventually(lambda: len(nvml.registered) == 8, 60.0)
    nvml.xid(5, 79)
    assert log.heard({xid(gpus[5].uuid, 79): 1})
    reader.close()


def _file(path: str, *texts: str) -> list[Callable[[Node], None]]:
    return [lambda node, text=text: node.write(path, text) for text in texts]  # type: ignore[misc]


def _answers(old: str, new: str) -> Callable[[Node], None]:
    assert re.search(old, ANSWERS)
    return lambda node: node.nvml.answer(re.sub(old, new, ANSWERS))


def _faults(*faults: str) -> Callable[[Node], None]:
    return lambda node: node.nvml.fail(*faults)


def _unplug(node: Node) -> None:
    (node.host / "sys/bus/pci/devices/0000:df:00.0").unlink(missing_ok=True)


def _plug(node: Node) -> None:
    place = node.host / "sys/bus/pci/devices/0000:df:00.0"
    if not place.is_symlink():
        real = next((node.host / "sys/devices").rglob("0000:df:00.0"))
        place.symlink_to(Path("../../..") / real.relative_to(node.host / "sys"))


def _drop_hca(node: Node) -> None:
    (node.host / "sys/class/infiniband/mlx5_7").unlink(missing_ok=True)


def _start_kubelet(node: Node) -> None:
    node.write(
        "proc/4242/cmdline", f"/usr/bin/kubelet\0--config=/{CONFIG}\0--cpu-manager-policy=static\0"
    )


def _restart_kubelet(node: Node) -> None:
    (node.host / "proc/4242/cmdline").unlink(missing_ok=True)
    if (node.host / "proc/4242").is_dir():
        (node.host / "proc/4242").rmdir()
    node.write("proc/4343/cmdline", f"/usr/bin/kubelet\0--config=/{CONFIG}\0")


CHANGES: dict[str, list[Callable[[Node], None]]] = {
    "port": [
        *_file(f"{PORT}/state", "1: DOWN\n", "4: ACTIVE\n"),
        *_file(f"{PORT}/rate", "200 Gb/sec (4X HDR)\n"),
    ],
    "link": [
        *_file(f"{GPU}/current_link_width", "8\n", "16\n"),
        *_file(f"{GPU}/current_link_speed", "16.0 GT/s PCIe\n", "nonsense\n"),
    ],
    "memory": [
        *_file(
            "sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "7\n", "0\n"
        ),
        *_file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        *_file("proc/sys/vm/zone_reclaim_mode", "1\n"),
    ],
    "kubelet": [
        *_file(CONFIG, f"{HEADER}cpuManagerPolicy: static\n", HEADER, "not: this\n"),
        _start_kubelet,
        _restart_kubelet,
    ],
    "cpu": _file("sys/devices/system/cpu/online", "0-3\n", "0-223\n"),
    "modules": _file("proc/modules", "nvidia 1 0 - Live 0x0\n", "mlx5_core 9 0 - Live 0x0\n"),
    "driver": [
        _answers("nvmlSystemGetDriverVersion = 0 ", "nvmlSystemGetDriverVersion = 0 9"),
        *_file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  1\n",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  2\n",
        ),
    ],
    "gpu": [
        _faults("lost 3"),
        _faults("gone 3"),
        _faults(),
        _faults("code nvmlDeviceGetPersistenceMode 999"),
        _faults("garbage nvmlDeviceGetRemappedRows"),
        _answers(r"((NvLinkState 2|FieldValue 2 \d+) 5) = 0 1\b", r"\1 = 0 0"),
        _answers("nvmlDeviceGetCount_v2 = 0 8", "nvmlDeviceGetCount_v2 = 0 7"),
        _answers("nvmlDeviceGetPersistenceMode 1 = 0 1", "nvmlDeviceGetPersistenceMode 1 = 0 0"),
        lambda node: node.nvml.answer(ANSWERS),
    ],
    "plug": [_unplug, _plug, _drop_hca],
}
STEPS = [(name, at) for name, steps in CHANGES.items() for at in range(len(steps))]


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4))
@settings(
    max_examples=cases(5, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_after_any_changes_a_periodic_scan_finds_what_a_whole_one_does(
    own_node: Node, steps: list[tuple[str, int]]
) -> None:
    # All examples change the same node: each is one more sequence of changes.
    for name, at in steps:
        CHANGES[name][at](own_node)
        assert own_node.read() == own_node.whole()


def test_each_change_is_noticed(own_node: Node) -> None:
    missed = []
    for name, at in STEPS:
        CHANGES[name][at](own_node)
        if own_node.read() != own_node.whole():
            missed.append((name, at))
    assert missed == []


@pytest.mark.parametrize("shape", [path.name for path in SHAPES])
def test_every_read_is_in_one_of_the_tables(shape: str, unpacked: Callable[[str], Path]) -> None:
    host = Host(roots(unpacked(shape)))
    host.renew()
    host.read((), counters=True)
    hourly = changes.pattern(changes.HOURLY)
    unexplained = [
        path
        for tree in (host.sysfs, host.procfs)
        for act, path in tree.known
        if not tree.may_change((act, path)) and not hourly.fullmatch(path)
    ]
    assert unexplained == []
