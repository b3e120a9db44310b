"""How a run of the daemon ends: by its code a supervisor learns whether it was asked to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.component import Gpus
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.kernel import loops
from nodetopo.kernel.app import Daemon
from nodetopo.kernel.component import Kernel
from nodetopo.kernel.target import Machine
from nodetopo.model.nvml_event import NvmlStatus
from nodetopo.model.snapshot import Snapshot
from tests.kernel.running import WHOLE, component_of, kernel_of


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the signals of the process that runs the tests alone."""
    monkeypatch.setattr(loops, "install_signal_handlers", lambda *_: None)


@contextmanager
def started(
    read: Callable[[], Snapshot] = lambda: WHOLE, *, simulated: str | None = "h100", **settings: Any
) -> Iterator[Daemon]:
    """Yield a daemon that runs on what *read* returns."""
    with TemporaryDirectory(prefix="nodetopo-") as folder, FakeKubelet(Path(folder)):
        kernel = kernel_of(Path(folder), simulated=simulated, **settings)
        machine = Machine(read=read, reread=lambda: None, nvml=NvmlStatus)
        kernel.target = replace(kernel.target, machine=machine)
        daemon = Daemon(kernel)
        try:
            yield daemon
        finally:
            daemon.close()
            # A daemon abandons what is slow to end, which would run into the next tests.
            daemon._group.stop()
            for thread in daemon._group._threads:
                thread.join()


def test_a_requested_stop_is_no_failure() -> None:
    with started() as daemon:

        def stop(_kernel: Kernel, _stopping: threading.Event) -> bool:
            daemon._stop()
            return False

        assert daemon.run(stop) == 0


def test_a_single_run_that_is_stopped_too_early_ends_with_status_3() -> None:
    with started(once=True) as daemon:
        daemon._stop()
        assert daemon.run(lambda _, stopping: not stopping.is_set()) == 3


def test_a_loop_that_raises_is_a_failure() -> None:
    def read() -> Snapshot:
        raise KeyError("of ours")

    with started(read) as daemon, capture_logs() as logs:
        assert daemon.run(None) == 1
    assert [line["actor"] for line in logs if line["event"] == "actor failed"] == ["scan"]


def test_a_plugin_that_only_a_new_container_can_help_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = (SimpleNamespace(last_problem="the directory is another one"),)
    with started() as daemon, capture_logs() as logs:
        monkeypatch.setattr(PluginSet, "lost", property(lambda _: lost))
        assert daemon.run(None) == 1
    (line,) = [line for line in logs if line["event"] == "daemon ends"]
    assert line["problem"] == "the directory is another one"


def test_a_pause_of_the_driver_wakes_the_scan_and_what_reports_it(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("")
    with started(simulated=None, kubeconfig=tmp_path / "none") as daemon:
        gpus = component_of(daemon.kernel, Gpus)
        assert gpus.pause is not None
        gpus.pause.note({"labels": {"nvidia.com/mig.config.state": "pending"}})
        assert gpus.scans._is_asked.is_set()
        assert daemon.kernel.wake.is_set()
