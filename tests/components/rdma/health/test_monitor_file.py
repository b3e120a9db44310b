"""HCAs and verdicts that outlive the daemon: another process begins where the last one ended."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.components.rdma.health.hca import HcaFault, HcaRecord, HcaRules
from nodetopo.components.rdma.health.monitor import HcaHealthMonitor, HcaLoop, hcas_file
from nodetopo.components.rdma.health.probe import HcaProbe
from nodetopo.components.rdma.health.saved import SavedHcas, resumed, saved
from nodetopo.model.hca import Hca
from nodetopo.rdma.identity import MAX_KEY, KnownHca
from tests.failing_files import failing
from tests.probes.sysfs.hca_machine import HcaMachine

SHAPE = "h100x8-nvswitch-2numa-8cx7"
KEY = "0000:18:00.0"
"""Of mlx5_0."""


@dataclass
class Daemon:
    """The processes of a daemon, one after the other, on a machine with a clock."""

    node: HcaMachine
    path: Path
    now: float = 1000.0
    boot_id: str = "boot-1"
    monitor: HcaHealthMonitor = field(init=False)

    def start(self) -> None:
        """Begin a process; it scans at once."""
        file = hcas_file(self.path, self.boot_id)
        probe = HcaProbe(self.node.sysfs)
        self.monitor = HcaHealthMonitor(
            HcaRules(), probe, file, clock=lambda: self.now, on_change=lambda: None
        )
        self.monitor.take(self.node.snapshot())

    def run(self, for_s: float) -> None:
        """Let the loop run for *for_s*."""
        loop, end = HcaLoop(self.monitor), self.now + for_s
        while self.now < end:
            self.now += min(loop.step(), end - self.now)
        loop.step()

    @property
    def bad(self) -> dict[str, str | None]:
        """The reasons of those that are Unhealthy, by name."""
        return {it.name: it.reason for it in self.monitor.view.values() if not it.is_healthy}


@pytest.fixture
def daemon(hca_machine: Callable[[str], HcaMachine], tmp_path: Path) -> Daemon:
    """Return a daemon that has run for a while on a machine with eight HCAs, all of them up."""
    made = Daemon(hca_machine(SHAPE), tmp_path / "run" / "hcas.json")
    made.start()
    made.run(10.0)
    return made


def test_an_hca_that_recovers_is_given_out_no_earlier_after_a_restart(daemon: Daemon) -> None:
    daemon.node.set_state("mlx5_0", "1: DOWN")
    daemon.run(15.0)
    assert daemon.bad == {"mlx5_0": "HcaLinkDown"}
    daemon.node.set_state("mlx5_0", "4: ACTIVE")
    daemon.run(50.0)
    daemon.start()
    assert daemon.bad == {"mlx5_0": "HcaLinkDown"}
    assert daemon.monitor.notices() == ()
    daemon.run(59.0)
    assert daemon.bad == {"mlx5_0": "HcaLinkDown"}
    daemon.run(6.0)
    assert daemon.bad == {}
    assert [notice.reason for notice in daemon.monitor.notices()] == ["HcaRecovered"]


def test_what_a_start_cannot_read_is_joined_at_a_later_look(daemon: Daemon) -> None:
    daemon.node.set_state("mlx5_0", "1: DOWN")
    daemon.node.remove("mlx5_1")
    daemon.run(15.0)
    document, keys = daemon.path.read_text(), {one.key for one in daemon.monitor.known}
    daemon.node.set_state("mlx5_0", "4: ACTIVE")
    with failing(daemon.path, errno.EIO, reads=True, writes=False):
        daemon.start()
        daemon.run(10.0)
        assert daemon.bad == {}
    assert daemon.path.read_text() == document
    daemon.monitor.look()
    assert daemon.bad["mlx5_0"] == "HcaLinkDown"
    assert {one.key for one in daemon.monitor.known} == keys
    daemon.run(70.0)
    assert daemon.bad == {"mlx5_1": "HcaGone"}
    daemon.start()
    assert daemon.bad == {"mlx5_1": "HcaGone"}


def test_a_port_that_flaps_across_restarts_is_held_longer_each_time(daemon: Daemon) -> None:
    for _ in range(3):
        daemon.node.set_state("mlx5_0", "1: DOWN")
        daemon.run(15.0)
        daemon.node.set_state("mlx5_0", "4: ACTIVE")
        daemon.run(70.0)
        daemon.start()
    assert daemon.bad == {"mlx5_0": "HcaLinkDown"}
    daemon.run(110.0)
    assert daemon.bad == {"mlx5_0": "HcaLinkDown"}
    daemon.run(15.0)
    assert daemon.bad == {}


def test_an_hca_that_is_gone_stays_listed_and_is_unhealthy(daemon: Daemon) -> None:
    daemon.node.remove("mlx5_0")
    daemon.run(15.0)
    keys = [one.key for one in daemon.monitor.known]
    daemon.start()
    assert [one.key for one in daemon.monitor.known] == keys
    (lost,) = (one for one in daemon.monitor.known if one.is_lost)
    assert (lost.key, lost.hca.name) == (KEY, "mlx5_0")
    assert daemon.bad == {"mlx5_0": "HcaGone"}
    assert lost.hca.char_devices
    assert lost.hca.function
    assert lost.hca.path


def test_an_hca_that_vanished_between_two_processes_is_unhealthy_at_once(daemon: Daemon) -> None:
    daemon.node.remove("mlx5_0")
    daemon.start()
    assert daemon.bad == {"mlx5_0": "HcaMissing"}
    assert len(daemon.monitor.known) == 8


def test_a_port_that_went_down_between_two_processes_is_unhealthy_at_once(daemon: Daemon) -> None:
    daemon.node.set_state("mlx5_3", "1: DOWN")
    daemon.start()
    assert daemon.bad == {"mlx5_3": "HcaLinkDown"}


def test_an_hca_that_was_renamed_between_two_processes_keeps_its_key(daemon: Daemon) -> None:
    daemon.node.rename("mlx5_0", "ibp24s0")
    daemon.start()
    names = {one.key: one.hca.name for one in daemon.monitor.known}
    assert names[KEY] == "ibp24s0"
    assert len(names) == 8


def test_another_boot_begins_anew(daemon: Daemon) -> None:
    daemon.node.set_state("mlx5_0", "1: DOWN")
    back = daemon.node.remove("mlx5_1")
    daemon.run(15.0)
    daemon.node.set_state("mlx5_0", "4: ACTIVE")
    daemon.boot_id, daemon.now = "boot-2", 20.0
    daemon.start()
    assert daemon.bad == {}
    assert len(daemon.monitor.known) == 7
    back()


def test_a_process_writes_only_what_has_changed(daemon: Daemon) -> None:
    before = daemon.path.stat()
    daemon.run(600.0)
    daemon.start()
    daemon.run(60.0)
    assert daemon.path.stat().st_ino == before.st_ino
    daemon.node.set_state("mlx5_0", "1: DOWN")
    daemon.run(15.0)
    assert daemon.path.stat().st_ino != before.st_ino


def test_hcas_that_are_offered_no_more_are_forgotten(daemon: Daemon) -> None:
    daemon.node.set_state("mlx5_0", "1: DOWN")
    daemon.run(15.0)
    daemon.monitor.rest()
    daemon.run(10.0)
    daemon.node.set_state("mlx5_0", "4: ACTIVE")
    daemon.start()
    assert daemon.bad == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "nodetopo-hcas/v2"}'])
def test_a_file_that_is_not_understood_costs_the_wait_alone(daemon: Daemon, text: str) -> None:
    daemon.node.set_state("mlx5_1", "1: DOWN")
    daemon.run(15.0)
    daemon.path.write_text(text)
    daemon.start()
    assert daemon.bad == {"mlx5_1": "HcaLinkDown"}
    daemon.run(10.0)
    daemon.start()
    assert daemon.bad == {"mlx5_1": "HcaLinkDown"}


def test_a_place_that_cannot_be_written_is_named_once_and_survived(daemon: Daemon) -> None:
    daemon.path.unlink()
    daemon.path.parent.rmdir()
    daemon.path.parent.write_text("a file where a directory should be")
    with capture_logs() as logs:
        daemon.start()
        daemon.node.set_state("mlx5_0", "1: DOWN")
        daemon.run(60.0)
    assert daemon.bad == {"mlx5_0": "HcaLinkDown"}
    assert [line["event"] for line in logs] == ["state not saved"]


def test_times_and_keys_that_cannot_be_are_made_harmless() -> None:
    fault = HcaFault(reason="HcaLinkDown", said="its port is down")
    record = HcaRecord(name="mlx5_0", fault=fault, falls=(5000.0, -3.0, 7.0))
    content = SavedHcas(
        known=tuple(
            KnownHca(key=key, hca=Hca(name=name))
            for key, name in ((KEY, "mlx5_0"), (KEY, "mlx5_1"), ("x" * (MAX_KEY + 1), "y"))
        ),
        records={KEY: record, "another": record},
    )
    known, state = resumed(content, 10.0)
    assert [(one.key, one.hca.name) for one in known] == [(KEY, "mlx5_0")]
    assert dict(state) == {KEY: HcaRecord(name="mlx5_0", fault=fault, falls=(0.0, 7.0, 10.0))}
    assert saved(known, state).records == {KEY: state[KEY]}
