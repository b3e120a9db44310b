"""The health of a node's HCAs: a state advanced by sysfs readings and time.

Every step is a function of a state and a reading; nothing here reads a clock or hardware.

An HCA is Healthy while a port of it is ACTIVE. Only evidence changes the verdict: an unreadable
state (drivers answer EINVAL for restricted functions) changes nothing. A change costs more than a
delay: with each, the kubelet writes its checkpoint and the Node's status. So a fault must last some
seconds before it counts, and a recovered port must stay up for a minute, longer each time if it
keeps falling.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.hca import ACTIVE, HcaPort
from nodetopo.model.hca_health import HcaHealth, HcaHealthView
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import KnownHca

LINK_DOWN, FIRMWARE = "HcaLinkDown", "HcaFirmwareError"
"""Reasons of a verdict on an HCA that is listed; :class:`Presence` has the others."""


class Presence(Enum):
    """The state of an HCA in sysfs; the values are the reasons of verdicts."""

    LISTED = None
    """It is in ``/sys/class/infiniband``, under any name."""
    HIDDEN = "HcaMoved"
    """Its function has its driver, and each RDMA device belongs to one network namespace
    (``netns_mode`` of ``ib_core`` is exclusive), so that it is in another one."""
    UNREGISTERED = "HcaGone"
    """Its function has its driver and no RDMA device: the RDMA part of the driver is unloaded,
    switched off, or restarting.
    """
    UNBOUND = "HcaUnbound"
    """Its function is on the PCI bus and has no driver."""
    REMOVED = "HcaLost"
    """Its function is not on the PCI bus."""
    MISSING = "HcaMissing"
    """It is not listed, and its function is unknown, as with software devices."""
    UNKNOWN = "unknown"
    """The list could not be read."""


_SAID = MappingProxyType(
    {
        Presence.HIDDEN: "it is in another network namespace",
        Presence.UNREGISTERED: "its driver has no RDMA device for it",
        Presence.UNBOUND: "its PCI function has no driver",
        Presence.REMOVED: "its PCI function vanished from the bus",
        Presence.MISSING: "it vanished from /sys/class/infiniband",
    }
)


class HcaSighting(Struct, frozen=True, kw_only=True):
    """One reading of one HCA."""

    name: str
    presence: Presence
    states: tuple[str | None, ...] = ()  # by port; None for an unreadable port
    # Its driver cannot reach the firmware: reading a port's state fails although the function is
    # not restricted.
    is_silent: bool = False


class HcaFault(Struct, frozen=True, kw_only=True):
    """The reason for not handing out an HCA."""

    reason: str  # CamelCase
    said: str  # for a person, a sentence without full stop


class HcaRules(Struct, frozen=True, kw_only=True):
    """The numbers of the protocol; times in seconds."""

    # How long a fault must last, over at least two readings, before the HCA is Unhealthy.
    # Retraining a link and a takeover by another subnet manager finish in this time, and with a
    # reading every five seconds a port that is down leaves the device list within ten.
    confirm_s: float = 4.0
    recovery_s: float = 60.0  # up for this long before the HCA is Healthy again; as for GPUs
    # Number of falls within `flap_s` beyond which each doubles `recovery_s`, at least a minute.
    flaps: int = 3
    flap_s: float = 3600.0
    most_recovery_s: float = 1800.0  # the limit of that doubling: seven falls an hour

    def hold_s(self, falls: int) -> float:
        """Return how long an HCA with so many falls within *flap_s* must be well."""
        if falls < self.flaps:
            return self.recovery_s
        least = max(self.recovery_s, 60.0)
        longest = max(self.recovery_s, self.most_recovery_s)
        return min(longest, least * (2 << (falls - self.flaps)))


class HcaRecord(Struct, frozen=True, kw_only=True):
    """One HCA."""

    name: str  # as last known
    fault: HcaFault | None = None  # why it is Unhealthy; None if Healthy
    suspect: HcaFault | None = None  # read last, if it differs from `fault`
    suspect_since: float | None = None  # first reading of a Healthy HCA with a fault
    # Of an Unhealthy HCA, the first reading of an unbroken row without a fault.
    well_since: float | None = None
    # When it turned Unhealthy, oldest first, those within `flap_s` of the last.
    falls: tuple[float, ...] = ()


HcaState: TypeAlias = Mapping[str, HcaRecord]
"""By :attr:`nodetopo.rdma.identity.KnownHca.key`."""


def sightings(known: Sequence[KnownHca], snapshot: Snapshot) -> Mapping[str, HcaSighting]:
    """Return a scan's sightings of the *known* HCAs, from a snapshot that includes them."""
    is_unread = snapshot.hcas is None
    return {
        hca.key: HcaSighting(
            name=hca.hca.name,
            presence=Presence.UNKNOWN if is_unread else Presence.MISSING,
        )
        if is_unread or hca.is_lost
        else HcaSighting(name=hca.hca.name, presence=Presence.LISTED, states=_states(hca.hca.ports))
        for hca in known
    }


def after_sightings(
    state: HcaState, seen: Mapping[str, HcaSighting | None], now: float, rules: HcaRules
) -> HcaState:
    """Return *state* after a reading that shows *seen*, which has all HCAs that are known.

    One without a sighting stays as it was; an HCA that is new has one.
    """
    return MappingProxyType(
        {
            key: state[key] if sighting is None else _after(state.get(key), sighting, now, rules)
            for key, sighting in seen.items()
        }
    )


def is_unsettled(state: HcaState) -> bool:
    """Return whether a fault awaits confirmation, so that another reading is due soon."""
    return any(record.suspect_since is not None for record in state.values())


def view(state: HcaState, rules: HcaRules) -> HcaHealthView:
    return MappingProxyType({key: _verdict(record, rules) for key, record in state.items()})


def said(record: HcaRecord, fault: HcaFault, rules: HcaRules) -> str:
    """Return *fault* and its way of healing as a sentence without its full stop."""
    if fault.reason == Presence.HIDDEN.value:
        return f"{fault.said}; it is allocatable again once it is back"
    hold_s = rules.hold_s(len(record.falls))
    return f"{fault.said}; it is allocatable again once it has been up for {hold_s:g} s"


def _after(
    record: HcaRecord | None, sighting: HcaSighting, now: float, rules: HcaRules
) -> HcaRecord:
    fault = _fault(sighting)
    if record is None:  # nothing handed out needs to be taken back
        return HcaRecord(name=sighting.name, fault=None if fault is _UNSURE else fault)
    if record.name != sighting.name:
        record = replace(record, name=sighting.name)
    if fault is _UNSURE:
        return record if record.well_since is None else replace(record, well_since=None)
    if fault is None:
        return _well(record, now, rules)
    if record.fault is None:
        return _suspected(record, fault, now, rules)
    return _worse(record, fault)


def _well(record: HcaRecord, now: float, rules: HcaRules) -> HcaRecord:
    if record.fault is None:
        is_clear = record.suspect_since is None and record.suspect is None
        return record if is_clear else replace(record, suspect=None, suspect_since=None)
    since = now if record.well_since is None else record.well_since
    # The HCA leaves a pod's namespace at its end; the next pod should not wait for it.
    is_back = record.fault.reason == Presence.HIDDEN.value
    if is_back or now - since >= rules.hold_s(len(record.falls)):
        return replace(record, fault=None, suspect=None, well_since=None)
    return replace(record, suspect=None, well_since=since)


def _suspected(record: HcaRecord, fault: HcaFault, now: float, rules: HcaRules) -> HcaRecord:
    """Return a Healthy HCA after a reading with a fault, whichever fault it was before."""
    if record.suspect_since is None:
        return replace(record, suspect=fault, suspect_since=now)
    if now - record.suspect_since < rules.confirm_s:
        return replace(record, suspect=fault)
    falls = record.falls
    if fault.reason != Presence.HIDDEN.value:  # a pod that takes its HCA along is no fault
        falls = (*(at for at in falls if now - at < rules.flap_s), now)[-_MOST_FALLS:]
    return replace(record, fault=fault, suspect=None, suspect_since=None, falls=falls)


def _worse(record: HcaRecord, fault: HcaFault) -> HcaRecord:
    """Return an Unhealthy HCA after a reading with a fault; a new one counts from its second on."""
    if fault == record.fault:
        return replace(record, suspect=None, well_since=None)
    if fault == record.suspect:
        return replace(record, fault=fault, suspect=None, well_since=None)
    return replace(record, suspect=fault, well_since=None)


_MOST_FALLS = 16
"""More than the rules let happen within an hour, and few enough to keep."""

_UNSURE = HcaFault(reason="unknown", said="")
"""The reading proves nothing."""


def _fault(sighting: HcaSighting) -> HcaFault | None:
    """Return the fault that *sighting* shows; ``None`` for none, or :data:`_UNSURE`."""
    if sighting.presence is Presence.UNKNOWN:
        return _UNSURE
    if sighting.presence is not Presence.LISTED:
        reason = sighting.presence.value
        assert reason is not None
        return HcaFault(reason=reason, said=_SAID[sighting.presence])
    if ACTIVE in sighting.states:
        return None
    if sighting.is_silent:
        return HcaFault(
            reason=FIRMWARE,
            said="its firmware does not answer: no state of a port can be read",
        )
    if None in sighting.states or not sighting.states:
        return _UNSURE
    # Without the states themselves: DOWN, INIT and ARMED on the way up are one fault.
    ports = "its port is" if len(sighting.states) == 1 else "all its ports are"
    return HcaFault(reason=LINK_DOWN, said=f"{ports} down")


def _verdict(record: HcaRecord, rules: HcaRules) -> HcaHealth:
    if record.fault is None:
        return HcaHealth(name=record.name)
    return HcaHealth(
        name=record.name,
        is_healthy=False,
        reason=record.fault.reason,
        said=said(record, record.fault, rules),
    )


def _states(ports: Sequence[HcaPort]) -> tuple[str | None, ...]:
    return tuple(port.state for port in ports)
