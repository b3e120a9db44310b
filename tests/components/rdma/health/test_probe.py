"""What the look between two scans makes of machines that change under it."""

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from nodetopo.components.rdma.health.hca import Presence
from nodetopo.components.rdma.health.probe import COUNTERS, HcaProbe
from nodetopo.model.hca import HcaKind
from nodetopo.probes.sysfs.rdma_ports import HARDWARE_COUNTERS, LINK_COUNTERS
from nodetopo.rdma.identity import KnownHca, remembered_hcas
from tests.probes.sysfs.hca_machine import Errors, HcaMachine
from tests.probes.sysfs.rdma_host import IB, RdmaHost

SHAPES = (
    "h100x8-nvswitch-2numa-8cx7",
    "a100x8-nvswitch-2numa-sfvf",
    "h200x8-nvswitch-2numa-10roce",
    "v100x16-nvswitch-2numa-8cx",
    "b200x8-nvswitch-2numa-8cx7",
)


class Watched:
    """A machine, and the probe with what a scan has shown of it."""

    def __init__(self, node: HcaMachine) -> None:
        self.node = node
        self.probe = HcaProbe(node.sysfs)
        self.known: tuple[KnownHca, ...] = ()
        self.scan()

    def scan(self) -> None:
        """Read the whole tree."""
        self.known = remembered_hcas(self.known, self.node.snapshot())

    def look(self) -> dict[str, tuple[str, Presence, tuple[str | None, ...]]]:
        """Return what the probe sees, by key."""
        seen = self.probe.look(self.known)
        assert list(seen) == [it.key for it in self.known]
        return {key: (it.name, it.presence, it.states) for key, it in seen.items()}


@pytest.fixture
def watched(hca_machine: Callable[[str], HcaMachine]) -> Callable[[str], Watched]:
    """Return a function from a shape to a machine that the test may change."""
    return lambda shape: Watched(hca_machine(shape))


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    return RdmaHost(tmp_path)


def one(host: RdmaHost) -> Watched:
    """Return a machine with one HCA of one active port, on 0000:17:00.0."""
    function = host.function("17")
    host.port(host.hca("mlx5_0", function, hca_type="MT4129"), 1, IB)
    host.link(f"{function}/driver", "bus/pci/drivers/mlx5_core")
    (host.sysfs / "bus/pci/drivers/mlx5_core").mkdir(parents=True)
    host.write("module/ib_core/parameters", {"netns_mode": "Y"})
    return Watched(HcaMachine(host.sysfs))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_look_shows_what_a_scan_does(watched: Callable[[str], Watched], shape: str) -> None:
    node = watched(shape)
    assert node.known
    assert node.look() == {
        it.key: (it.hca.name, Presence.LISTED, tuple(port.state for port in it.hca.ports))
        for it in node.known
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_every_hca_that_is_renamed_is_recognized_under_its_new_name(
    watched: Callable[[str], Watched], shape: str
) -> None:
    node = watched(shape)
    before = node.look()
    names = [it.hca.name for it in node.known]
    for name in names:
        node.node.rename(name, f"renamed_{name}")
    after = node.look()
    assert after == {key: (f"renamed_{name}", *rest) for key, (name, *rest) in before.items()}
    node.scan()
    assert {it.key: it.hca.name for it in node.known if not it.is_lost} == {
        key: name for key, (name, *_rest) in after.items()
    }
    assert not any(it.is_lost for it in node.known)


def test_names_that_are_exchanged_lead_to_the_same_hcas(
    watched: Callable[[str], Watched],
) -> None:
    node = watched(SHAPES[0])
    first, second = node.known[0], node.known[1]
    state = node.node.place(first.hca.name) / "ports/1/state"
    state.write_text("1: DOWN\n", "ascii")
    node.node.rename(first.hca.name, "other")
    node.node.rename(second.hca.name, first.hca.name)
    node.node.rename("other", second.hca.name)
    seen = node.look()
    assert seen[first.key] == (second.hca.name, Presence.LISTED, ("DOWN",))
    assert seen[second.key] == (first.hca.name, Presence.LISTED, ("ACTIVE",))


@pytest.mark.parametrize("number", [2, 3])
def test_subfunctions_that_exchange_names_keep_their_states(host: RdmaHost, number: int) -> None:
    """All are on one function, and the set of names stays the same."""
    function = host.function("17")
    for at in range(number):
        place = f"{function}/mlx5_core.sf.{at}"
        host.write(place, {"sfnum": str(88 + at)})
        host.port(
            host.hca(f"mlx5_{at}", place), 1, IB | {"state": "1: DOWN" if at else "4: ACTIVE"}
        )
    node = Watched(HcaMachine(host.sysfs))
    before = node.look()
    node.node.rename("mlx5_0", "other")
    for at in range(1, number):
        node.node.rename(f"mlx5_{at}", f"mlx5_{at - 1}")
    node.node.rename("other", f"mlx5_{number - 1}")
    after = node.look()
    assert {key: states for key, (*_, states) in after.items()} == {
        key: states for key, (*_, states) in before.items()
    }
    assert {states for *_, states in after.values()} == {("ACTIVE",), ("DOWN",)}


def test_each_state_of_a_port_shows_at_the_next_look(host: RdmaHost) -> None:
    node = one(host)
    found = []
    for text in ("1: DOWN", "2: INIT", "3: ARMED", "4: ACTIVE", "5: ACTIVE_DEFER", "0: NOP"):
        host.write("class/infiniband/mlx5_0/ports/1", {"state": text})
        found.append(node.look()["0000:17:00.0"][2])
    expected = ("DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER", "NOP")
    assert found == [(state,) for state in expected]


@pytest.mark.parametrize("text", ["", "6: <unknown>", "rubbish", "\x00", "4:"])
def test_a_state_that_is_none_is_unknown(host: RdmaHost, text: str) -> None:
    node = one(host)
    host.write("class/infiniband/mlx5_0/ports/1", {"state": text})
    assert node.look()["0000:17:00.0"] == ("mlx5_0", Presence.LISTED, (None,))


def test_a_refused_state_is_unknown_and_not_read_again(host: RdmaHost, errors: Errors) -> None:
    node = one(host)
    errors.opened.clear()
    errors.by_end = {"/state": errno.EINVAL}
    for _ in range(10):
        assert node.look()["0000:17:00.0"] == ("mlx5_0", Presence.LISTED, (None,))
        assert not node.probe.look(node.known)["0000:17:00.0"].is_silent
    assert errors.opened.total() == 1
    errors.by_end.clear()
    host.hca("mlx5_9", host.function("99"))  # a driver has come, perhaps another one
    assert node.look()["0000:17:00.0"][2] == ("ACTIVE",)


@pytest.mark.parametrize(
    ("code", "is_silent"),
    [
        (errno.EIO, True),
        (errno.ENXIO, True),
        (errno.ETIMEDOUT, True),
        (errno.ENOENT, False),
        (errno.ENODEV, False),
        (errno.EACCES, False),
        (errno.EMFILE, False),
    ],
)
def test_only_an_answer_of_the_firmware_that_is_missing_is_held_against_it(
    host: RdmaHost, errors: Errors, code: int, is_silent: bool
) -> None:
    node = one(host)
    errors.by_end = {"/state": code}
    (sighting,) = node.probe.look(node.known).values()
    assert (sighting.states, sighting.is_silent) == ((None,), is_silent)
    errors.by_end.clear()
    (sighting,) = node.probe.look(node.known).values()
    assert (sighting.states, sighting.is_silent) == (("ACTIVE",), False)


def test_what_has_become_of_an_hca_is_told_from_its_function(host: RdmaHost) -> None:
    node = one(host)
    node.node.remove("mlx5_0")
    assert node.look()["0000:17:00.0"] == ("mlx5_0", Presence.UNREGISTERED, ())
    host.write("module/ib_core/parameters", {"netns_mode": "N"})
    assert node.look()["0000:17:00.0"][1] is Presence.HIDDEN
    (host.sysfs / "bus/pci/devices/0000:17:00.0").resolve().joinpath("driver").unlink()
    assert node.look()["0000:17:00.0"][1] is Presence.UNBOUND
    (host.sysfs / "bus/pci/devices/0000:17:00.0").unlink()
    assert node.look()["0000:17:00.0"][1] is Presence.REMOVED
    shutil.rmtree(host.sysfs / "bus")
    assert node.look()["0000:17:00.0"][1] is Presence.MISSING


def test_an_rdma_module_that_is_unloaded_takes_all_hcas_along(host: RdmaHost) -> None:
    node = one(host)
    node.node.remove("mlx5_0")
    (host.sysfs / "class/infiniband").rmdir()
    assert node.look()["0000:17:00.0"][1] is Presence.UNREGISTERED


def test_a_list_that_cannot_be_read_proves_nothing(
    host: RdmaHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = one(host)

    def fail(_self: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "iterdir", fail)
    assert node.look()["0000:17:00.0"] == ("mlx5_0", Presence.UNKNOWN, ())
    assert node.probe.listing is None


def test_a_software_device_that_is_gone_is_missing(host: RdmaHost) -> None:
    host.port(host.hca("rxe0", None), 1, IB)
    node = Watched(HcaMachine(host.sysfs))
    assert [it.hca.kind for it in node.known] == [HcaKind.SOFTWARE]
    assert node.look()["rxe0"] == ("rxe0", Presence.LISTED, ("ACTIVE",))
    node.node.remove("rxe0")
    assert node.look()["rxe0"] == ("rxe0", Presence.MISSING, ())


def test_a_look_opens_the_states_of_ports_and_nothing_else(
    watched: Callable[[str], Watched], errors: Errors
) -> None:
    node = watched(SHAPES[0])
    errors.opened.clear()
    node.look()
    expected = [
        f"{node.node.sysfs}/class/infiniband/{it.hca.name}/ports/{port.number}/state"
        for it in node.known
        for port in it.hca.ports
    ]
    assert errors.opened == Counter(expected)


def test_counters_are_read_that_there_are_and_a_refused_one_only_once(
    host: RdmaHost, errors: Errors
) -> None:
    node = one(host)
    port = "class/infiniband/mlx5_0/ports/1"
    host.write(f"{port}/counters", {"link_downed": "3", "symbol_error": "N/A (no PMA)"})
    host.write(f"{port}/counters", {"port_rcv_errors": "7", "port_xmit_data": "1"})
    host.write(f"{port}/hw_counters", {"out_of_sequence": "5"})
    node.look()
    errors.by_end = {"/port_rcv_errors": errno.EINVAL}
    for _ in range(3):
        assert node.probe.counters(node.known) == {
            ("mlx5_0", 1): {"link_downed": 3, "out_of_sequence": 5}
        }
    assert errors.opened[str(host.sysfs / port / "counters/port_rcv_errors")] == 1


def test_the_counters_are_some_of_those_that_snapshots_have() -> None:
    homes = dict.fromkeys(LINK_COUNTERS, "counters") | dict.fromkeys(
        HARDWARE_COUNTERS, "hw_counters"
    )
    assert COUNTERS.items() <= homes.items()
