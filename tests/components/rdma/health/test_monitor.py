"""HCAs that fall, flap, move and vanish under a daemon that watches them."""

import errno
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from nodetopo.components.rdma.health.hca import HcaRules, HcaSighting
from nodetopo.components.rdma.health.monitor import (
    COUNTERS_S,
    LOOK_S,
    SCAN_PAUSE_S,
    UNSETTLED_S,
    HcaHealthMonitor,
    HcaLoop,
    configured_hca_health,
)
from nodetopo.components.rdma.health.probe import HcaProbe
from nodetopo.kernel.settings.declare import Settings
from nodetopo.machines.bundled import machine as bundled
from nodetopo.model.hca import Hca, HcaPort
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import KnownHca
from tests.probes.sysfs.hca_machine import Errors, HcaMachine

SCAN_S = 60.0
WAIT_S = 60.0
SHAPE = "h100x8-nvswitch-2numa-8cx7"


@dataclass
class Watched:
    """A machine and the watch over its HCAs, with a clock that the test moves."""

    node: HcaMachine
    now: float = 1000.0
    changes: int = 0
    scans_asked: int = 0
    scanned_at: float = 0.0
    monitor: HcaHealthMonitor = field(init=False)

    def __post_init__(self) -> None:
        self.monitor = HcaHealthMonitor(
            HcaRules(),
            HcaProbe(self.node.sysfs),
            clock=lambda: self.now,
            on_change=self._changed,
        )
        self.monitor.on_other_hcas = self._asked
        self.scan()

    def _changed(self) -> None:
        self.changes += 1

    def _asked(self) -> None:
        self.scans_asked += 1

    def scan(self) -> None:
        """Give the watch a snapshot of the machine as it is now."""
        self.scanned_at = self.now
        self.monitor.take(self.node.snapshot())

    def run(self, for_s: float, *, scans: bool = True) -> None:
        """Let the loop run for *for_s*, and scan once a minute."""
        loop, end = HcaLoop(self.monitor), self.now + for_s
        while self.now < end:
            self.now += min(loop.step(), end - self.now)
            if scans and self.now >= self.scanned_at + SCAN_S:
                self.scan()
        loop.step()

    @property
    def bad(self) -> dict[str, str | None]:
        """The reasons of those that are Unhealthy, by name."""
        return {it.name: it.reason for it in self.monitor.view.values() if not it.is_healthy}

    @property
    def told(self) -> list[str]:
        """The reasons of what was reported since the last call."""
        return [notice.reason for notice in self.monitor.notices()]


@pytest.fixture
def watched(hca_machine: Callable[[str], HcaMachine]) -> Watched:
    """Return a watch over a machine with eight HCAs, all of them up."""
    made = Watched(hca_machine(SHAPE))
    assert made.bad == {}
    assert made.changes == 1
    return made


def test_a_port_that_goes_down_is_out_within_ten_seconds_and_back_after_a_minute(
    watched: Watched,
) -> None:
    watched.run(LOOK_S)
    before = watched.changes
    watched.node.set_state("mlx5_0", "1: DOWN")
    watched.run(10.0, scans=False)
    assert watched.bad == {"mlx5_0": "HcaLinkDown"}
    watched.node.set_state("mlx5_0", "4: ACTIVE")
    watched.run(59.0)
    assert watched.bad == {"mlx5_0": "HcaLinkDown"}
    watched.run(10.0)
    assert watched.bad == {}
    assert watched.changes == before + 2
    assert watched.told == ["HcaUnhealthy", "HcaRecovered"]


def test_an_hour_of_flapping_changes_the_list_a_few_times(watched: Watched) -> None:
    before = watched.changes
    states = ("1: DOWN", "2: INIT", "3: ARMED", "4: ACTIVE")
    for number in range(360):
        watched.node.set_state("mlx5_0", states[number % 4])
        watched.run(10.0)
    assert watched.bad == {"mlx5_0": "HcaLinkDown"}
    assert watched.changes - before <= 2
    watched.node.set_state("mlx5_0", "4: ACTIVE")
    watched.run(70.0)
    assert watched.bad == {}


def test_a_switch_that_reboots_is_one_change_for_all_its_hcas(watched: Watched) -> None:
    names = [it.hca.name for it in watched.monitor.known]
    watched.run(LOOK_S)
    before = watched.changes
    for name in names:
        watched.node.set_state(name, "1: DOWN")
    watched.run(10.0)
    assert watched.bad == dict.fromkeys(names, "HcaLinkDown")
    assert watched.changes == before + 1


def test_a_renamed_hca_stays_healthy_and_asks_for_one_scan(watched: Watched) -> None:
    (key,) = (it.key for it in watched.monitor.known if it.hca.name == "mlx5_0")
    watched.node.rename("mlx5_0", "ibp24s0")
    watched.run(3600.0, scans=False)
    assert watched.bad == {}
    assert watched.scans_asked == 1
    assert watched.monitor.view[key].name == "ibp24s0"
    watched.scan()
    (known,) = (it for it in watched.monitor.known if it.key == key)
    assert (known.hca.name, known.is_lost) == ("ibp24s0", False)
    assert watched.told == []


def test_an_hca_in_another_namespace_is_out_and_back_at_once_when_its_pod_ends(
    watched: Watched,
) -> None:
    watched.node.write("module/ib_core/parameters/netns_mode", "N")
    back = watched.node.remove("mlx5_3")
    watched.run(10.0)
    assert watched.bad == {"mlx5_3": "HcaMoved"}
    assert watched.scans_asked == 1
    watched.scan()
    watched.run(600.0)
    assert watched.bad == {"mlx5_3": "HcaMoved"}
    assert len(watched.monitor.view) == 8
    back()
    watched.run(LOOK_S)
    assert watched.bad == {}
    assert watched.told == ["HcaUnhealthy", "HcaRecovered"]


def test_an_hca_whose_directory_vanishes_is_listed_on_and_unhealthy(watched: Watched) -> None:
    keys = list(watched.monitor.view)
    back = watched.node.remove("mlx5_3")
    watched.run(120.0)
    assert watched.bad == {"mlx5_3": "HcaGone"}
    assert list(watched.monitor.view) == keys
    assert [it.key for it in watched.monitor.known if it.is_lost] == [keys[3]]
    back()
    watched.run(130.0)
    assert watched.bad == {}
    assert not any(it.is_lost for it in watched.monitor.known)


def test_a_function_without_a_driver_and_one_off_the_bus_are_told_apart(
    watched: Watched,
) -> None:
    for name in ("mlx5_1", "mlx5_2"):
        place = watched.node.function(name)
        watched.node.remove(name)
        (place / "driver").unlink(missing_ok=True)
        if name == "mlx5_2":
            (watched.node.sysfs / "bus/pci/devices" / place.name).unlink()
            shutil.rmtree(place)
    watched.run(10.0)
    assert watched.bad == {"mlx5_1": "HcaUnbound", "mlx5_2": "HcaLost"}
    watched.scan()
    watched.run(10.0)
    assert watched.bad == {"mlx5_1": "HcaUnbound", "mlx5_2": "HcaLost"}
    assert len(watched.monitor.view) == 8


def test_a_state_file_that_answers_einval_keeps_each_hca_as_it_was(
    watched: Watched, errors: Errors
) -> None:
    watched.node.set_state("mlx5_0", "1: DOWN")
    watched.run(10.0)
    errors.by_end = {"/state": errno.EINVAL}
    errors.opened.clear()
    watched.run(3600.0, scans=False)
    assert watched.bad == {"mlx5_0": "HcaLinkDown"}
    reads = {path: count for path, count in errors.opened.items() if path.endswith("/state")}
    assert set(reads.values()) == {1}
    watched.scan()
    assert watched.bad == {"mlx5_0": "HcaLinkDown"}


def test_a_firmware_that_does_not_answer_takes_its_hca_out(
    watched: Watched, errors: Errors
) -> None:
    errors.by_end = {"/mlx5_4/ports/1/state": errno.ETIMEDOUT}
    watched.run(10.0)
    assert watched.bad == {"mlx5_4": "HcaFirmwareError"}
    errors.by_end.clear()
    watched.run(70.0)
    assert watched.bad == {}


def test_rdma_devices_that_come_and_go_all_the_time_ask_for_few_scans(
    watched: Watched,
) -> None:
    for number in range(60):
        watched.node.rename("mlx5_0" if not number else f"ib{number - 1}", f"ib{number}")
        watched.run(LOOK_S, scans=False)
    assert 2 <= watched.scans_asked <= 60 * LOOK_S / SCAN_PAUSE_S + 1


def test_a_scan_that_does_not_show_what_the_directory_does_is_asked_for_once(
    watched: Watched,
) -> None:
    (watched.node.sysfs / "class/infiniband/abi_version").write_text("1\n", "ascii")
    snapshot = watched.node.snapshot()
    assert snapshot.hcas is not None
    lacking = Snapshot(hcas=tuple(it for it in snapshot.hcas if it.name != "abi_version"))
    for _ in range(20):
        watched.run(60.0, scans=False)
        watched.monitor.take(lacking)
    assert watched.scans_asked == 1


def test_a_scan_is_taken_while_a_driver_keeps_a_look_waiting(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, end = threading.Event(), threading.Event()
    seen = HcaProbe.look

    def stuck(probe: HcaProbe, known: Sequence[KnownHca]) -> Mapping[str, HcaSighting]:
        began.set()
        end.wait(WAIT_S)
        return seen(probe, known)

    monkeypatch.setattr(HcaProbe, "look", stuck)
    looking = threading.Thread(target=watched.monitor.look, daemon=True)
    looking.start()
    try:
        assert began.wait(WAIT_S)
        watched.scan()
        assert looking.is_alive()
        assert len(watched.monitor.known) == 8
    finally:
        end.set()
        looking.join(WAIT_S)


def test_a_scan_opens_no_file_of_its_own(watched: Watched, errors: Errors) -> None:
    snapshot = watched.node.snapshot()
    errors.opened.clear()
    watched.monitor.take(snapshot)
    assert errors.opened.total() == 0


def test_nothing_is_read_before_an_hca_is_offered_and_after(
    watched: Watched, errors: Errors
) -> None:
    watched.monitor.rest()
    errors.opened.clear()
    watched.run(600.0, scans=False)
    assert errors.opened.total() == 0
    assert (watched.monitor.view, watched.monitor.known) == ({}, ())


def test_the_view_that_says_the_same_stays_the_same_object(watched: Watched) -> None:
    before = watched.monitor.view
    watched.run(600.0)
    assert watched.monitor.view is before


def test_the_next_look_comes_sooner_while_a_fault_is_unconfirmed(watched: Watched) -> None:
    loop = HcaLoop(watched.monitor)
    assert loop.step() == LOOK_S
    watched.node.set_state("mlx5_0", "1: DOWN")
    assert loop.step() == UNSETTLED_S


def test_hundreds_of_virtual_functions_are_looked_at_less_often() -> None:
    hcas = tuple(
        Hca(name=f"v{n}", pci=PciAddress(0, n, 0, 0), ports=(HcaPort(number=1, state="ACTIVE"),))
        for n in range(200)
    )
    monitor = HcaHealthMonitor(HcaRules(), None, on_change=lambda: None)
    monitor.take(Snapshot(hcas=hcas))
    assert monitor.pause_s == 7 * LOOK_S


def test_counters_are_read_once_a_minute(watched: Watched, errors: Errors) -> None:
    place = "class/infiniband/mlx5_0/ports/1/counters"
    watched.node.write(f"{place}/link_downed", "1")
    watched.now += COUNTERS_S
    watched.monitor.look()
    assert watched.monitor.counters["mlx5_0", 1] == {"link_downed": 1}
    errors.opened.clear()
    watched.run(120.0, scans=False)
    assert errors.opened[str(watched.node.sysfs / place / "link_downed")] == 2


def test_a_simulated_hca_is_judged_by_scans_alone() -> None:
    settings = Settings(node_name="n", machine="dgx-h100")
    monitor = configured_hca_health(settings, on_change=lambda: None)
    assert monitor is not None
    snapshot = bundled("dgx-h100")
    monitor.take(snapshot)
    assert len(monitor.view) == len(snapshot.hcas or ()) > 0
    assert all(it.is_healthy for it in monitor.view.values())
    monitor.look()
    monitor.take(Snapshot(hcas=()))
    assert all(it.is_healthy for it in monitor.view.values())


def test_the_switch_of_the_health_checks_is_for_hcas_as_well() -> None:
    settings = Settings(node_name="n", health_checks=False)
    assert configured_hca_health(settings, on_change=lambda: None) is None
