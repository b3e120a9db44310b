"""The kernel's log as a source of XIDs, through pipes and files with records in its form."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from nodetopo.errors import InputError
from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.model.pci import PciAddress
from nodetopo.probes.sysfs import kernel_log
from nodetopo.probes.sysfs.kernel_log import KernelLog, parse
from tests.deviceplugin.eventually import eventually

GPU = PciAddress.parse("0000:3b:00.0")
KNOWN = {GPU: "GPU-a", PciAddress.parse("0000:af:00.0"): "GPU-b"}
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
AT_START = (
    r"NVRM: The NVIDIA GPU 0000:3b:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has"
    r"\x0aNVRM: fallen off the bus and is not responding to commands."
)


def record(text: str, priority: int = 4) -> bytes:
    """Return a record as ``/dev/kmsg`` gives it: at 4 a warning of the kernel's own."""
    return (
        f"{priority},1042,88123456,-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n".encode()
    )


@pytest.mark.parametrize(
    ("text", "xid"),
    [
        (XID_79, 79),
        ("NVRM: Xid (PCI:0000:3b:00): 48, An uncorrectable double bit error", 48),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel", 94),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, Graphics Exception", 13),
        ("NVRM: Xid (PCI:00000000:3B:00): 154, GPU recovery action changed from 0x0 to 0x2", 154),
        ("NVRM: Xid (PCI:0000:3b:00.0): 119, Timeout waiting for RPC from GSP!", 119),
        ("NVRM: Xid (0000:3b:00): 8, Channel 00000008", 8),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", None),
        ("NVRM: GPU at 0000:3b:00.0 has fallen off the bus.", None),
        (AT_START, None),
    ],
)
def test_each_form_of_a_drivers_line_is_understood(text: str, xid: int | None) -> None:
    assert parse(record(text)) == (GPU, xid)


@pytest.mark.parametrize(
    "line",
    [
        record(XID_79, priority=12),  # facility 1: a user wrote it to /dev/kmsg
        record(f"someone says {XID_79}"),
        record("NVRM: Xid: 13, 0000 02005600 00000056"),  # of which GPU?
        record("NVRM: Xid (0003:00): 13, 0001 00000000"),
        record("NVRM: Xid (PCI:0000:3b:00): none"),
        record("NVRM: Xid (PCI:0000:3b:00): 12345678901, no code has so many digits"),
        record("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05"),
        record("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE"),
        XID_79.encode(),
        b" SUBSYSTEM=pci",
        b"4,1,2,-;NVRM: Xid (PCI:\xff\xfe",
        b"",
    ],
)
def test_everything_else_tells_nothing(line: bytes) -> None:
    assert parse(line) is None


class Collector:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.batches: list[tuple[NvmlEvent, ...]] = []

    def __call__(self, events: Sequence[NvmlEvent]) -> None:
        """Take a batch."""
        self.batches.append(tuple(events))

    @property
    def counts(self) -> dict[tuple[str | None, int | None], int]:
        """By GPU and XID."""
        sums: dict[tuple[str | None, int | None], int] = {}
        for event in (event for batch in self.batches for event in batch):
            sums[event.gpu, event.xid] = sums.get((event.gpu, event.xid), 0) + event.count
        return sums


Follow = Callable[[Path, Collector], KernelLog]


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait at a close for a thread that gets its turn late."""
    monkeypatch.setattr(kernel_log, "_CLOSE_S", 60.0)


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Start to read a log; it is closed when the test ends."""
    started: list[KernelLog] = []

    def follow(path: Path, collector: Collector) -> KernelLog:
        started.append(KernelLog(path, collector, KNOWN.get))
        started[-1].start()
        return started[-1]

    yield follow
    for log in started:
        log.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A named pipe, and a descriptor to write to it."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    yield path, end
    os.close(end)


def test_what_the_kernel_writes_arrives_as_events_of_the_gpu_at_the_address(
    follow: Follow, pipe: tuple[Path, int]
) -> None:
    collector = Collector()
    follow(pipe[0], collector)
    os.write(pipe[1], record("usb 1-1: new device") + record(XID_79))
    assert eventually(lambda: bool(collector.batches))
    assert collector.batches == [(NvmlEvent(kind=EventKind.XID, gpu="GPU-a", xid=79),)]


def test_a_gpu_that_fell_off_the_bus_without_an_xid_is_unavailable(
    follow: Follow, pipe: tuple[Path, int]
) -> None:
    collector = Collector()
    follow(pipe[0], collector)
    os.write(pipe[1], record("NVRM: GPU 0000:af:00.0: GPU has fallen off the bus."))
    assert eventually(lambda: bool(collector.batches))
    assert collector.batches == [(NvmlEvent(kind=EventKind.UNAVAILABLE, gpu="GPU-b"),)]


def test_an_xid_of_a_gpu_that_nobody_knows_is_left_out(
    follow: Follow, pipe: tuple[Path, int]
) -> None:
    collector = Collector()
    follow(pipe[0], collector)
    os.write(pipe[1], record(XID_79.replace("3b", "ee")) + record(XID_79))
    assert eventually(lambda: bool(collector.batches))
    assert collector.counts == {("GPU-a", 79): 1}


def test_a_storm_arrives_complete_in_few_batches(follow: Follow, pipe: tuple[Path, int]) -> None:
    collector = Collector()
    follow(pipe[0], collector)
    lines = [record(XID_79), record(XID_79.replace("3b", "af").replace("79", "95"))]
    for _ in range(500):
        os.write(pipe[1], b"".join(lines * 20))  # waits while the pipe is full
    assert eventually(lambda: collector.counts == {("GPU-a", 79): 10_000, ("GPU-b", 95): 10_000})
    assert len(collector.batches) < 500


def test_what_was_in_the_log_before_is_not_read_and_what_is_added_is(
    follow: Follow, tmp_path: Path
) -> None:
    path, collector = tmp_path / "kern.log", Collector()
    path.write_bytes(record(XID_79))
    follow(path, collector)
    with path.open("ab") as log:
        log.write(record(XID_79.replace("79", "48")))
    assert eventually(lambda: bool(collector.batches))
    assert collector.counts == {("GPU-a", 48): 1}


def test_it_goes_on_when_a_writer_of_a_pipe_goes_and_another_comes(
    follow: Follow, tmp_path: Path
) -> None:
    path, collector = tmp_path / "kmsg", Collector()
    os.mkfifo(path)
    follow(path, collector)
    for expected in (1, 2):
        path.write_bytes(record(XID_79))
        assert eventually(lambda n=expected: collector.counts == {("GPU-a", 79): n})  # type: ignore[misc]


def test_a_callback_that_fails_is_asked_again(follow: Follow, pipe: tuple[Path, int]) -> None:
    class Failing(Collector):
        def __call__(self, events: Sequence[NvmlEvent]) -> None:
            super().__call__(events)
            if len(self.batches) == 1:
                raise RuntimeError("not now")

    collector = Failing()
    follow(pipe[0], collector)
    for expected in (1, 2):
        os.write(pipe[1], record(XID_79))
        assert eventually(lambda n=expected: len(collector.batches) == n)  # type: ignore[misc]


def _descriptors() -> set[tuple[str, str]]:
    """Return what is open; other threads may close theirs meanwhile."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add((entry.name, str(entry.readlink())))
    return found


def test_close_ends_the_thread_and_frees_every_descriptor(pipe: tuple[Path, int]) -> None:
    before = _descriptors()
    for is_started in (True, False):
        log = KernelLog(pipe[0], Collector(), KNOWN.get)
        if is_started:
            log.start()
        log.close()
        log.close()
    assert [it for it in threading.enumerate() if it.name == "kernel-log"] == []
    assert _descriptors() <= before


def test_a_log_that_cannot_be_read_is_refused_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        KernelLog(tmp_path / "kmsg", Collector(), KNOWN.get)
    assert str(caught.value) == (
        f"cannot read the kernel's log {tmp_path}/kmsg: No such file or directory — "
        "give the agent the file and CAP_SYSLOG, or leave the setting out"
    )
