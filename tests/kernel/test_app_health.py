"""GPUs that report errors, as the kubelet gets to see them: a whole daemon on a fake driver."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import psutil
import pytest

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.fake_kubelet import Endpoint, FakeKubelet
from nodetopo.formats.support_archive import unpack
from nodetopo.model.codec import decode
from tests.budget import cases
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.generous_deadlines import use_generous_deadlines
from tests.lab.go_program import user_cache

__all__ = ["use_generous_deadlines"]

NODES = Path(__file__).parents[1] / "nodes"
TIMEOUT_S = 120.0
WORDS = ("--scan-interval", "2", "--recovery", "1", "--log-format", "json", "--cdi-spec", "none")

_T = TypeVar("_T")


class Daemon:
    """A running daemon, its driver, and the kubelet that it serves."""

    def __init__(self, process: subprocess.Popen[str], nvml: FakeNvml, log: list[str]) -> None:
        self.process = process
        self.nvml = nvml
        self._log = log

    def said(self, reason: str) -> list[str]:
        """Return the messages of the notices with *reason* so far."""
        lines = (json.loads(line) for line in tuple(self._log) if line.startswith("{"))
        return [line["message"] for line in lines if line.get("reason") == reason]

    def events(self, name: str) -> list[dict[str, object]]:
        """Return the log lines called *name*."""
        lines = (json.loads(line) for line in tuple(self._log) if line.startswith("{"))
        return [line for line in lines if line["event"] == name]

    def warnings(self) -> list[dict[str, object]]:
        """Return the log lines that are warnings or worse."""
        lines = (json.loads(line) for line in tuple(self._log) if line.startswith("{"))
        return [line for line in lines if line["level"] not in ("debug", "info")]

    def url(self) -> str:
        """Return where the metrics are."""
        return str(eventually(lambda: self.events("metrics served"))[0]["url"])


@contextmanager
def running(directory: Path, machine: str, *arguments: str) -> Iterator[Daemon]:
    """Run the daemon on *machine*, whose driver a test may break, for a kubelet in *directory*."""
    nvml = FakeNvml(directory / "nvml", (NODES / machine / "nvml.txt").read_text())
    roots = [f"--{name}-root={directory / name}" for name in ("sysfs", "procfs", "host")]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "nodetopo", "run", *WORDS, *roots, *arguments),
            f"--nvml-library={library(user_cache())}",
            f"--device-plugin-dir={directory}",
            f"--health-file={directory / 'health.json'}",
            *("--node-name", "n", "--metrics-address", "127.0.0.1:0"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**_clean(), "NODETOPO_FAKE_NVML": str(nvml.directory)},
    )
    log: list[str] = []
    reader = threading.Thread(target=_read, args=(process, log), daemon=True)
    reader.start()
    try:
        yield Daemon(process, nvml, log)
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)


def eventually(look: Callable[[], _T]) -> _T:
    """Return the first true answer of *look*, within a generous time."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"it never came true; last seen: {found!r}"
        time.sleep(0.05)
    return found


def unhealthy(kubelet: FakeKubelet, resource: str = "nvidia.com/gpu") -> list[str] | None:
    """Return the ids that the kubelet must not hand out; ``None`` before it has any."""
    view = kubelet.view(resource)
    if view is None or not view.devices:
        return None
    return [device.id for device in view.devices if not device.is_healthy]


class Remembering(FakeKubelet):
    """A kubelet that remembers which devices it was ever told not to hand out."""

    def __init__(self, socket_dir: Path) -> None:
        self.taken: set[str] = set()
        super().__init__(socket_dir)

    def _received(self, endpoint: Endpoint, devices: tuple[PluginDevice, ...]) -> None:
        super()._received(endpoint, devices)
        self.taken |= {device.id for device in devices if not device.is_healthy}


def test_an_xid_takes_its_gpu_out_and_evidence_brings_it_back(tmp_path: Path) -> None:
    with Remembering(tmp_path) as kubelet, running(tmp_path, "l40sx4-pcie-2numa") as daemon:
        kubelet.wait_registered(TIMEOUT_S)
        eventually(lambda: len(daemon.nvml.registered) >= 4)
        daemon.nvml.xid(2, 62)
        (taken,) = eventually(lambda: kubelet.taken)

        eventually(lambda: any(taken in message for message in daemon.said("GpuUnhealthy")))
        eventually(lambda: unhealthy(kubelet) == [])
        eventually(lambda: any(taken in message for message in daemon.said("GpuRecovered")))


def test_an_application_error_takes_no_gpu_out_and_is_counted(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path) as kubelet, running(tmp_path, "l40sx4-pcie-2numa") as daemon:
        kubelet.wait_registered(TIMEOUT_S)
        eventually(lambda: len(daemon.nvml.registered) >= 4)
        daemon.nvml.xid(1, 31, 7)

        def counts() -> list[str]:
            return [line.rsplit(" ", 1)[1] for line in _lines(daemon.url(), "nodetopo_xid_")]

        eventually(lambda: counts() == ["7.0"])
        assert unhealthy(kubelet) == []


def test_all_replicas_of_a_gpu_that_fell_off_the_bus_go_with_it(tmp_path: Path) -> None:
    sharing = ("--time-slicing", "nvidia.com/gpu=4")
    with (
        FakeKubelet(tmp_path) as kubelet,
        running(tmp_path, "l40sx4-pcie-2numa", *sharing) as daemon,
    ):
        kubelet.wait_registered(TIMEOUT_S)
        eventually(lambda: len(daemon.nvml.registered) >= 4)
        daemon.nvml.xid(3, 79)
        gone = eventually(lambda: unhealthy(kubelet) or [])

        stems = {name.partition("::")[0] for name in gone}
        assert len(stems) == 1
        assert sorted(gone) == [f"{stem}::{number}" for stem in stems for number in range(4)]


def test_all_mig_devices_follow_their_gpu() -> None:
    mixed = ("--mig-strategy", "mixed")
    with (
        TemporaryDirectory(prefix="nodetopo-") as short,  # the sockets have long names
        FakeKubelet(Path(short)) as kubelet,
        running(Path(short), "h100x8-nvswitch-2numa-mig", *mixed) as daemon,
    ):
        small = "nvidia.com/mig-1g.10gb"
        kubelet.wait_registered(TIMEOUT_S, small)
        eventually(lambda: len(daemon.nvml.registered) >= 8)
        view = kubelet.view(small)
        assert view is not None
        for gpu in range(8):
            daemon.nvml.xid(gpu, 79)

        assert eventually(lambda: unhealthy(kubelet, small)) == [one.id for one in view.devices]


def test_a_new_daemon_remembers_which_gpu_needs_a_reboot(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path) as kubelet:
        with running(tmp_path, "l40sx4-pcie-2numa") as daemon:
            kubelet.wait_registered(TIMEOUT_S)
            eventually(lambda: len(daemon.nvml.registered) >= 4)
            daemon.nvml.xid(0, 79)
            before = eventually(lambda: unhealthy(kubelet))
            eventually((tmp_path / "health.json").exists)
        with running(tmp_path, "l40sx4-pcie-2numa") as daemon:
            eventually(lambda: daemon.events("resource registered"))

            assert eventually(lambda: unhealthy(kubelet)) == before


def test_nvml_that_fails_in_many_ways_is_one_warning_until_it_answers(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path) as kubelet, running(tmp_path, "l40sx4-pcie-2numa") as daemon:
        kubelet.wait_registered(TIMEOUT_S)
        eventually(lambda: len(daemon.nvml.registered) >= 4)
        for fault in ("code * 999", "crash nvmlInitWithFlags", "code nvmlDeviceGetCount_v2 999"):
            published = len(daemon.events("snapshot published"))
            daemon.nvml.fail(fault)
            # Another cause is another snapshot.
            eventually(lambda: len(daemon.events("snapshot published")) > published)  # noqa: B023
        daemon.nvml.fail()
        (again,) = eventually(lambda: daemon.events("NVML gives readings again"))

        # The kubelet here has no PodResources.
        (warning,) = (line for line in daemon.warnings() if line["event"] != "pods not measured")
        assert (warning["event"], again["level"]) == ("NVML gives no reading", "info")
        assert warning["cause"]
        assert warning["cure"]


def test_nothing_that_a_gpu_reports_counts_where_health_is_not_checked(tmp_path: Path) -> None:
    off = "--no-health-checks"
    with (
        FakeKubelet(tmp_path) as kubelet,
        running(tmp_path, "l40sx4-pcie-2numa", off) as daemon,
    ):
        kubelet.wait_registered(TIMEOUT_S)
        daemon.nvml.xid(0, 79)
        daemon.nvml.fail("lost 1")
        found = eventually(lambda: unhealthy(kubelet))

        assert daemon.nvml.registered == ()
        assert len(found or ()) == 1


def test_after_the_nvml_process_died_events_are_heard_again_and_the_gap_is_read(
    tmp_path: Path,
) -> None:
    rarely = ("--scan-interval", "3600", "--recovery", "3600")
    with (
        FakeKubelet(tmp_path) as kubelet,
        running(tmp_path, "l40sx4-pcie-2numa", *rarely) as daemon,
    ):
        view = kubelet.wait_registered(TIMEOUT_S)
        ids = [device.id for device in view.devices]
        eventually(lambda: len(daemon.nvml.registered) >= 4)
        daemon.nvml.fail("gone 1")
        (child,) = psutil.Process(daemon.process.pid).children()
        child.kill()

        assert eventually(lambda: unhealthy(kubelet)) == [ids[1]]
        assert len(daemon.nvml.registered) >= 4 + 3
        daemon.nvml.xid(2, 79)
        assert eventually(lambda: len(unhealthy(kubelet) or ()) == 2)
        assert sorted(unhealthy(kubelet) or ()) == sorted(ids[1:3])


@pytest.mark.timeout(900)
def test_a_storm_of_10_000_errors_a_second_costs_no_memory_and_delays_no_pod(
    tmp_path: Path,
) -> None:
    later = ("--recovery", "3600")  # than the storm, though its sender may come to a standstill
    with (
        FakeKubelet(tmp_path) as kubelet,
        running(tmp_path, "l40sx4-pcie-2numa", *later) as daemon,
    ):
        view = kubelet.wait_registered(TIMEOUT_S)
        eventually(lambda: len(daemon.nvml.registered) >= 4)
        eventually(lambda: daemon.events("node audited"))  # what it loads late is there
        sent = _storm(daemon, seconds=2)  # what a storm takes once is not growth
        before = _resident(daemon)
        ids = [device.id for device in view.devices]

        for _ in range(cases(6, 60)):
            sent += _storm(daemon, seconds=1)
            assert len(kubelet.allocate(ids[:1]).cdi_devices) == 1
            assert len(kubelet.preferred(2, ids)) == 2

        assert _resident(daemon) < before + 8 * 2**20
        eventually(lambda: _counted(daemon) == sent)
        assert len(daemon.events("device list changed")) <= 8  # two for each GPU


def _storm(daemon: Daemon, seconds: int) -> int:
    """Report 10,000 errors a second, of 50 kinds, on all GPUs; return how many."""
    for _ in range(seconds * 10):
        for number in range(50):
            daemon.nvml.xid(number % 4, 13 + number, 20)
        time.sleep(0.1)
    return seconds * 10_000


def _counted(daemon: Daemon) -> float:
    lines = _lines(daemon.url(), "nodetopo_xid_events_total{")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def _resident(daemon: Daemon) -> int:
    parent = psutil.Process(daemon.process.pid)
    return sum(
        int(process.memory_info().rss) for process in (parent, *parent.children(recursive=True))
    )


def _lines(url: str, beginning: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        text: str = answer.read().decode()
    return [line for line in text.splitlines() if line.startswith(beginning)]


def _read(process: subprocess.Popen[str], log: list[str]) -> None:
    assert process.stderr is not None
    with process.stderr:
        log.extend(process.stderr)


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("NODETOPO_")}


@pytest.fixture(autouse=True)
def _roots(tmp_path: Path) -> None:
    for name in ("sysfs", "procfs", "host"):
        (tmp_path / name).mkdir()


def test_support_takes_log_settings_and_metrics_of_the_running_daemon(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path) as kubelet, running(tmp_path, "l40sx4-pcie-2numa") as daemon:
        kubelet.wait_registered(TIMEOUT_S)
        address = daemon.url().removeprefix("http://").removesuffix("/metrics")
        archive = tmp_path / "support.tar.gz"
        subprocess.run(
            [
                *(sys.executable, "-m", "nodetopo", "support", f"--output={archive}"),
                *(f"--{name}-root={tmp_path / name}" for name in ("sysfs", "procfs", "host")),
                f"--nvml-library={library(user_cache())}",
                f"--health-file={tmp_path / 'health.json'}",
                *("--node-name", "n", f"--metrics-address={address}"),
            ],
            env={**_clean(), "NODETOPO_FAKE_NVML": str(daemon.nvml.directory)},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        files = unpack(archive.read_bytes())
    events = [json.loads(line)["event"] for line in files["log.txt"].decode().splitlines()]
    assert "metrics served" in events
    assert json.loads(files["settings.json"])["settings"]["recovery"] == {
        "value": "1",
        "origin": "flag --recovery",
    }
    assert b"nodetopo_devices{" in files["metrics.txt"]
    assert len(decode(files["snapshot.json"].decode()).snapshot.gpus) == 4


def test_a_daemon_that_finds_garbage_takes_every_gpu_back_until_it_has_evidence(
    tmp_path: Path,
) -> None:
    (tmp_path / "health.json").write_text("{{{", "utf-8")
    with Remembering(tmp_path) as kubelet, running(tmp_path, "l40sx4-pcie-2numa") as daemon:
        eventually(lambda: unhealthy(kubelet) == [])
        assert len(kubelet.taken) == 4
        (said,) = daemon.said("HealthFileDamaged")
        assert "all GPUs are Unhealthy" in said
        eventually(lambda: len(daemon.said("GpuRecovered")) == 4)


def test_an_operator_brings_one_gpu_back_through_the_daemons_of_the_node(tmp_path: Path) -> None:
    machine = "l40sx4-pcie-2numa"
    with (
        FakeKubelet(tmp_path) as kubelet,
        running(tmp_path, machine) as daemon,
        running(tmp_path, machine) as other,
    ):
        kubelet.wait_registered(TIMEOUT_S)
        eventually(lambda: len({process for process, *_ in daemon.nvml.registered}) == 2)
        for gpu in (0, 1):
            daemon.nvml.xid(gpu, 79)
        eventually(lambda: len(unhealthy(kubelet) or ()) == 2)
        eventually(lambda: len(list(tmp_path.glob("clear-*.sock"))) == 2)
        for one in (daemon, other):
            eventually(lambda: len(one.said("GpuUnhealthy")) == 2)  # noqa: B023 - called at once

        assert "GPU1" in cleared(tmp_path, "GPU1", "--dry-run").stdout
        assert len(unhealthy(kubelet) or ()) == 2
        done = cleared(tmp_path, "GPU1")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == "  is Healthy"
        eventually(lambda: len(unhealthy(kubelet) or ()) == 1)
        for one in (daemon, other):
            (said,) = eventually(lambda: one.said("HealthCleared"))  # noqa: B023
            assert said.endswith("an operator cleared Xid79")
            assert one.said("HealthForgotten") == []
    with FakeKubelet(tmp_path) as kubelet, running(tmp_path, machine):
        assert len(eventually(lambda: unhealthy(kubelet) or [])) == 1  # GPU0 alone


def cleared(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask the daemons of *directory* to clear GPUs."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "nodetopo", "health", "--clear", *arguments),
            f"--health-file={directory / 'health.json'}",
            f"--device-plugin-dir={directory}",
        ],
        capture_output=True,
        text=True,
        env=_clean(),
        timeout=TIMEOUT_S,
        check=False,
    )
