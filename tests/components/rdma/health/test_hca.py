"""HCAs over time: when one turns Unhealthy, when it is back, and what people are told."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.components.rdma.health.hca import (
    HcaRules,
    HcaSighting,
    HcaState,
    Presence,
    after_sightings,
    is_unsettled,
    sightings,
    view,
)
from nodetopo.components.rdma.health.notices import hca_notices
from nodetopo.model.hca import Hca, HcaPort
from nodetopo.model.notice import Notice
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import remembered_hcas

RULES = HcaRules()
KEY = "0000:17:00.0"
UP, DOWN, INIT, ARMED, UNKNOWN = ("ACTIVE",), ("DOWN",), ("INIT",), ("ARMED",), (None,)


def seen(
    states: Sequence[str | None] = UP,
    *,
    presence: Presence = Presence.LISTED,
    name: str = "mlx5_0",
    is_silent: bool = False,
) -> Mapping[str, HcaSighting]:
    sighting = HcaSighting(name=name, presence=presence, states=tuple(states), is_silent=is_silent)
    return {KEY: sighting}


def gone(presence: Presence) -> Mapping[str, HcaSighting]:
    return seen((), presence=presence)


@dataclasses.dataclass
class Story:
    """One HCA, read every five seconds."""

    rules: HcaRules = RULES
    now: float = 1000.0
    state: HcaState = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    told: list[Notice] = dataclasses.field(default_factory=list)
    changes: list[float] = dataclasses.field(default_factory=list)

    def look(self, what: Mapping[str, HcaSighting], after_s: float = 5.0) -> "Story":
        """Take a reading *after_s* after the last one."""
        self.now += after_s
        before, was = self.state, self.reason
        self.state = after_sightings(before, what, self.now, self.rules)
        self.told += hca_notices(before, self.state, self.rules)
        if before and (was is None) != (self.reason is None):
            self.changes.append(self.now)
        return self

    def looks(self, what: Mapping[str, HcaSighting], for_s: float) -> "Story":
        """Take the same reading every five seconds for *for_s*."""
        for _ in range(round(for_s / 5)):
            self.look(what)
        return self

    @property
    def reason(self) -> str | None:
        """Why it is Unhealthy now; ``None`` if it is Healthy."""
        return view(self.state, self.rules)[KEY].reason if self.state else None

    @property
    def reasons(self) -> list[str]:
        """The reasons of all notices so far."""
        return [notice.reason for notice in self.told]


@pytest.mark.parametrize("states", [DOWN, INIT, ARMED, ("DOWN", "INIT"), ("ACTIVE_DEFER",)])
def test_a_port_that_is_not_active_counts_at_its_second_reading(
    states: tuple[str, ...],
) -> None:
    story = Story().look(seen())
    assert story.look(seen(states)).reason is None
    assert is_unsettled(story.state)
    assert story.look(seen(states), RULES.confirm_s).reason == "HcaLinkDown"
    assert not is_unsettled(story.state)


def test_a_link_that_trains_anew_changes_nothing() -> None:
    story = Story().look(seen()).look(seen(DOWN)).look(seen(INIT), 2.0).look(seen(), 1.0)
    assert (story.reason, story.told) == (None, [])
    assert story.look(seen(DOWN)).reason is None  # the row has to begin again


def test_one_active_port_is_enough() -> None:
    story = Story().look(seen(("DOWN", "ACTIVE"))).looks(seen(("DOWN", "ACTIVE")), 60)
    assert story.reason is None


def test_a_state_that_cannot_be_read_keeps_the_verdict() -> None:
    sound = Story().look(seen()).looks(seen(UNKNOWN), 3600)
    assert (sound.reason, sound.told) == (None, [])
    assert sound.looks(seen(("DOWN", None)), 60).reason is None
    broken = Story().look(seen(DOWN)).looks(seen(UNKNOWN), 3600)
    assert broken.reason == "HcaLinkDown"
    assert Story().look(seen(UNKNOWN)).reason is None
    assert Story().look(seen(())).reason is None
    assert sound.looks(gone(Presence.UNKNOWN), 60).reason is None


def test_a_state_that_cannot_be_read_now_and_then_hides_no_fault_and_proves_no_recovery() -> None:
    story = Story().look(seen()).look(seen(DOWN)).look(seen(UNKNOWN)).look(seen(DOWN))
    assert story.reason == "HcaLinkDown"
    for _ in range(100):
        story.looks(seen(), 50).look(seen(UNKNOWN))
    assert story.reason == "HcaLinkDown"


def test_an_hca_is_healthy_again_once_it_has_been_up_for_a_minute() -> None:
    story = Story().look(seen(DOWN)).looks(seen(), 60)
    assert story.reason == "HcaLinkDown"
    assert story.look(seen()).reason is None
    assert story.reasons == ["HcaRecovered"]


def test_a_port_that_falls_within_the_minute_has_to_begin_again() -> None:
    story = Story().look(seen(DOWN)).looks(seen(), 55).look(seen(DOWN)).looks(seen(), 60)
    assert story.reason == "HcaLinkDown"
    assert story.look(seen()).reason is None


def test_an_hca_that_is_down_at_the_start_is_unhealthy_at_once_and_no_news() -> None:
    story = Story().look(seen(DOWN))
    assert (story.reason, story.told) == ("HcaLinkDown", [])


@pytest.mark.parametrize(
    ("presence", "reason", "said"),
    [
        (Presence.REMOVED, "HcaLost", "its PCI function vanished from the bus"),
        (Presence.UNBOUND, "HcaUnbound", "its PCI function has no driver"),
        (Presence.UNREGISTERED, "HcaGone", "its driver has no RDMA device for it"),
        (Presence.HIDDEN, "HcaMoved", "it is in another network namespace"),
        (Presence.MISSING, "HcaMissing", "it vanished from /sys/class/infiniband"),
    ],
)
def test_an_hca_that_is_not_there_is_unhealthy_with_what_has_become_of_it(
    presence: Presence, reason: str, said: str
) -> None:
    story = Story().look(seen())
    assert story.look(gone(presence)).reason is None
    assert story.look(gone(presence)).reason == reason
    (notice,) = story.told
    assert (notice.reason, notice.is_warning) == ("HcaUnhealthy", True)
    assert notice.message.startswith(f"mlx5_0 ({KEY}): {said}; it is allocatable again once it")
    assert notice.key == f"{KEY} {reason}"


def test_a_driver_that_cannot_reach_the_firmware_is_a_fault() -> None:
    story = Story().look(seen()).looks(seen(UNKNOWN, is_silent=True), 10)
    assert story.reason == "HcaFirmwareError"
    other_port = Story().look(seen()).looks(seen(("ACTIVE", None), is_silent=True), 60)
    assert other_port.reason is None


def test_an_hca_that_comes_back_from_another_namespace_is_healthy_at_once() -> None:
    story = Story().look(seen()).looks(gone(Presence.HIDDEN), 600)
    assert story.look(seen()).reason is None
    for _ in range(20):  # pod after pod takes it along
        story.looks(gone(Presence.HIDDEN), 60).look(seen())
        assert story.reason is None
    assert "HcaFlapping" not in story.reasons


def test_another_fault_of_an_unhealthy_hca_counts_from_its_second_reading() -> None:
    story = Story().look(seen(DOWN)).look(gone(Presence.UNREGISTERED))
    assert story.reason == "HcaLinkDown"
    assert story.look(gone(Presence.UNREGISTERED)).reason == "HcaGone"
    assert story.reasons == ["HcaUnhealthy"]
    alternating = Story().look(seen(DOWN))
    for _ in range(100):
        alternating.look(gone(Presence.UNBOUND)).look(seen(DOWN))
    assert alternating.told == []


def test_a_renamed_hca_is_named_as_it_is_now() -> None:
    story = Story().look(seen()).look(seen(name="rocep23s0"))
    assert view(story.state, RULES)[KEY].name == "rocep23s0"
    assert (story.reason, story.told) == (None, [])


def test_an_hca_that_keeps_falling_has_to_stay_up_for_longer_each_time() -> None:
    story, holds = Story().look(seen()), []
    for _ in range(6):
        story.looks(seen(DOWN), 10)
        began = story.now
        while story.reason is not None:
            story.look(seen())
        holds.append(story.now - began - 5.0)  # it is up from the first reading on
    assert holds == [60, 60, 120, 240, 480, 960]
    assert story.reasons.count("HcaFlapping") == 4
    said = next(it.message for it in story.told if it.reason == "HcaFlapping")
    assert said == f"mlx5_0 ({KEY}): it turned Unhealthy 3 times within 1 h"
    story.looks(seen(), 3600).looks(seen(DOWN), 10)
    assert view(story.state, RULES)[KEY].said == (
        "its port is down; it is allocatable again once it has been up for 60 s"
    )


def test_a_longer_recovery_that_was_set_is_never_shortened() -> None:
    rules = HcaRules(recovery_s=7200)
    assert [rules.hold_s(falls) for falls in (1, 3, 9)] == [7200, 7200, 7200]
    assert [HcaRules(recovery_s=0).hold_s(falls) for falls in (1, 2, 3)] == [0, 0, 120]


@given(
    st.lists(
        st.tuples(st.sampled_from([UP, DOWN, INIT, UNKNOWN]), st.integers(1, 40)),
        max_size=200,
    )
)
def test_no_flapping_changes_the_list_more_than_fourteen_times_an_hour(
    stretches: list[tuple[tuple[str | None, ...], int]],
) -> None:
    story = Story().look(seen())
    for states, times in stretches:
        story.looks(seen(states), 5 * times)
    for at in story.changes:
        assert sum(at <= other < at + 3600 for other in story.changes) <= 14


def test_the_worst_flapping_changes_the_list_few_times_an_hour() -> None:
    story = Story().look(seen())
    while story.now < 20 * 3600:
        story.looks(seen(DOWN), 10)
        while story.reason is not None:
            story.look(seen())
    counts = [sum(at <= other < at + 3600 for other in story.changes) for at in story.changes]
    assert 2 < max(counts) <= 14


def snapshot(*hcas: Hca) -> Snapshot:
    return Snapshot(hcas=hcas)


def hca(name: str, bus: int, *states: str | None) -> Hca:
    ports = tuple(HcaPort(number=1 + n, state=state) for n, state in enumerate(states))
    return Hca(name=name, pci=PciAddress(0, bus, 0, 0), ports=ports)


def test_a_scan_shows_ports_and_what_is_missing() -> None:
    first = snapshot(hca("mlx5_0", 1, "ACTIVE"), hca("mlx5_1", 2, "DOWN", None))
    second = snapshot(hca("mlx5_1", 2, "ACTIVE", "ACTIVE"))
    known = remembered_hcas(remembered_hcas((), first), second)
    assert sightings(known, second) == {
        "0000:01:00.0": HcaSighting(name="mlx5_0", presence=Presence.MISSING),
        "0000:02:00.0": HcaSighting(
            name="mlx5_1", presence=Presence.LISTED, states=("ACTIVE", "ACTIVE")
        ),
    }
    unread = sightings(known, Snapshot(hcas=None))
    assert {it.presence for it in unread.values()} == {Presence.UNKNOWN}
