"""What a value of ``NCCL_IB_HCA`` means on a node.

A list of names after ``^`` (all but these) and ``=`` (exactly these); without ``=`` each stands
for all names that begin with it. A colon and a port may follow a name. Of the ports that the
list leaves NCCL uses the active ones, and without any it goes through sockets
(NVIDIA/nccl v2.30.7-1, ``src/transport/net_ib/init.cc`` and ``src/misc/utils.cc``).
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from agent.checks.inputs import adapters as hardware
from agent.checks.pods.inputs import listed
from agent.checks.rdma_ports import ACTIVE, is_efa
from agent.model.hca import Hca, HcaPort
from agent.model.snapshot import Snapshot

MOST = 32
"""Entries of a list that NCCL reads (``MAX_IB_DEVS``)."""

SHOWN = 60
"""Characters of a value that are repeated."""

_ANY = -1
"""The port of an entry that names none."""

_DIGITS = re.compile(r"\s*(?P<number>[+-]?[0-9]{1,9})")

_Answers = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    port: int

    def is_of(self, hca: Hca, *, is_exact: bool) -> bool:
        return hca.name == self.name if is_exact else hca.name.startswith(self.name)

    def has(self, port: HcaPort) -> bool:
        return self.port in (_ANY, port.number)


@dataclass(frozen=True, slots=True)
class Choice:
    """A list as NCCL reads it; one without entries names all HCAs."""

    entries: tuple[_Entry, ...]
    is_exact: bool
    excludes: bool

    def takes(self, hca: Hca, port: HcaPort) -> bool:
        """Return whether the list leaves *port* of *hca* to NCCL."""
        is_named = any(
            entry.is_of(hca, is_exact=self.is_exact) and entry.has(port) for entry in self.entries
        )
        return (is_named or not self.entries) != self.excludes

    def named(self, snapshot: Snapshot) -> tuple[Hca, ...]:
        """Return the HCAs that an entry stands for, by whatever port."""
        return tuple(
            hca
            for hca in snapshot.hcas or ()
            if any(entry.is_of(hca, is_exact=self.is_exact) for entry in self.entries)
        )


def choice(value: str) -> Choice:
    """Return what *value* of ``NCCL_IB_HCA`` says; an empty one leaves every HCA to NCCL."""
    excludes = value.startswith("^")
    rest = value[excludes:]
    is_exact = rest.startswith("=")
    items = (item for item in rest[is_exact:].split(",") if item.partition(":")[0])
    entries = tuple(_entry(item) for item, _ in zip(items, range(MOST), strict=False))
    return Choice(entries, is_exact, excludes)


def _entry(item: str) -> _Entry:
    name, _, rest = item.partition(":")
    port = rest.partition(":")[0]
    digits = _DIGITS.match(port)
    return _Entry(name, _ANY if not port else int(digits["number"]) if digits else 0)


def adapters(snapshot: Snapshot, value: str) -> _Answers:
    """Yield what is wrong with *value* on this node, whose HCAs the pod sees, and what is right."""
    chosen = choice(value)
    shown = f"NCCL_IB_HCA={value[:SHOWN]}"
    if _leaves_none(snapshot, chosen):
        yield f"{shown}, {_reason(snapshot, chosen)}", listed(_able(snapshot))
    else:
        yield from _portless(snapshot, chosen, shown)
    names = [entry.name for entry in chosen.entries]
    named = chosen.named(snapshot)
    also = [hca.name for hca in named if _is_up(hca) and _is_more(hca.name, _own(named, names))]
    if also:
        verb, sign = ("excludes", "^") if chosen.excludes else ("takes", "")
        exact = value.removeprefix("^")[:SHOWN]
        yield f"{shown}, which {verb} {listed(also)} too", f"NCCL_IB_HCA={sign}={exact}"
    fabric = [hca.name for hca in snapshot.management_hcas or () if hca.name in names]
    if fabric and not chosen.excludes:
        yield f"{shown}, of which {listed(fabric)} is the NVLink fabric's", listed(_able(snapshot))


def missing_states(snapshot: Snapshot, value: str) -> tuple[str, ...]:
    """Return the HCAs of which *value* leaves ports that may be active, where none is known to."""
    chosen = choice(value)
    left = [(hca, port) for hca, port in _ports(snapshot) if chosen.takes(hca, port)]
    if not value or any(port.state == ACTIVE for _, port in left):
        return ()
    return tuple(dict.fromkeys(hca.name for hca, _ in left))


def _leaves_none(snapshot: Snapshot, chosen: Choice) -> bool:
    """Return whether the node has HCAs for NCCL, and the list none of them."""
    ports = tuple(_ports(snapshot))
    return bool(ports) and not any(chosen.takes(*one) for one in ports)


def _ports(snapshot: Snapshot) -> Iterator[tuple[Hca, HcaPort]]:
    """Yield the ports that NCCL could use: not known to be down, and of hardware that it speaks."""
    for hca in hardware(snapshot):
        for port in hca.ports:
            if port.state in (ACTIVE, None) and not is_efa(hca):
                yield hca, port


def _reason(snapshot: Snapshot, chosen: Choice) -> str:
    if chosen.excludes:
        return "which excludes every HCA of this node"
    if not chosen.named(snapshot):
        return "and no HCA of this node is named so"
    if any(chosen.takes(hca, port) for hca in snapshot.hcas or () for port in hca.ports):
        return "of which no port is active"
    return "and the HCAs that it names have no such port"


def _portless(snapshot: Snapshot, chosen: Choice, shown: str) -> _Answers:
    """Find the entries that name a port which none of their HCAs has."""
    for entry in chosen.entries:
        hcas = [hca for hca in hardware(snapshot) if entry.is_of(hca, is_exact=chosen.is_exact)]
        ports = [port for hca in hcas for port in hca.ports]
        if ports and all(hca.ports for hca in hcas) and not any(map(entry.has, ports)):
            numbers = sorted({port.number for port in ports})
            yield (
                f"{shown}, of which {entry.name}:{entry.port} is no port of this node",
                listed(f"{entry.name}:{number}" for number in numbers),
            )


def _own(hcas: Collection[Hca], names: Collection[str]) -> frozenset[str]:
    return frozenset(hca.name for hca in hcas).intersection(names)


def _is_more(name: str, named: Collection[str]) -> bool:
    """Return whether *name* is one of *named* with more digits, as ``mlx5_10`` is ``mlx5_1``."""
    return name not in named and any(
        name.startswith(one) and name[len(one) :].isdecimal() for one in named
    )


def _is_up(hca: Hca) -> bool:
    return any(port.state == ACTIVE for port in hca.ports)


def _able(snapshot: Snapshot) -> Iterator[str]:
    return iter(dict.fromkeys(hca.name for hca, _ in _ports(snapshot)))
