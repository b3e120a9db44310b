"""ResourceClaims from the API server, and their explanations."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.allocation.score import Score
from nodetopo.formats.fields import Object, dig, mappings, text, whole
from nodetopo.model.dra import DeviceKey, PublishedDevice, PublishedPool
from nodetopo.model.kubernetes import quantity
from nodetopo.model.nvlink import Closeness

EXPORT = "nodetopo export --for dra"
"""Writes claims with alternatives: the cure of most claims that got less than they could."""


class Verdict(StrEnum):
    """The outcome of a claim."""

    BEST = "best"
    """No better set of GPUs was free."""
    WORSE = "worse"
    """A better one was."""
    NO_CHOICE = "no-choice"
    """It has no GPUs, or there was none but those it got."""
    UNKNOWN = "unknown"
    """The devices, or the GPUs behind them, are unknown."""
    WAITING = "waiting"
    """Nothing is allocated."""


class Given(Struct, frozen=True, kw_only=True):
    """A device of a claim."""

    request: str  # without the alternative
    key: DeviceKey
    gpus: tuple[int, ...]  # positions in the snapshot of the GPUs behind it
    hca: int | None  # position of the HCA, if it is one
    published: PublishedDevice | None  # None if no slice has the device any longer


class Request(Struct, frozen=True, kw_only=True):
    """A request of a claim."""

    name: str
    device_classes: tuple[str, ...]  # of its alternatives, each once
    count: int | None  # devices of the alternative that matched, or of the first; None for all
    alternatives: tuple[str, ...]  # names in order; empty for a plain request
    matched: str | None  # chosen by the allocator; None for a plain request, or while it waits
    has_selectors: bool  # CEL narrows the devices, in addition to the class
    tolerates: bool  # has tolerations, which are not compared with taints here
    is_admin: bool = False  # requests devices regardless of other users
    # Requested of shared devices, in base units.
    capacity: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


class Pools(Struct, frozen=True, kw_only=True):
    """Known facts about pools, except their devices."""

    # Of the cluster; devices of incomplete pools are not allocated.
    known: tuple[PublishedPool, ...] = ()
    unplaced: tuple[PublishedPool, ...] = ()  # whose reachable nodes are unknown


class Set(Struct, frozen=True, kw_only=True):
    """A set of GPUs, and its score."""

    gpus: tuple[int, ...]
    score: Score


class Lack(Struct, frozen=True, kw_only=True):
    """Why a request cannot be met on one node."""

    node: str
    request: str
    wanted: int | None  # devices that the request asks for; None for all of a node
    # free, in_use, tainted: devices of its driver on the node, each counted once
    free: int
    in_use: int
    tainted: int
    # Attribute that the claim matches → most free devices with an equal value.
    largest: Mapping[str, int]
    holders: tuple[str, ...]  # who has those in use: namespace/name of claims, sorted

    @property
    def is_enough(self) -> bool:
        """Whether the counts alone would suffice, so that another condition is the obstacle."""
        wanted = self.wanted or 1
        return self.free >= wanted and all(most >= wanted for most in self.largest.values())


class Explained(Struct, frozen=True, kw_only=True):
    """The explanation of a claim."""

    claim: str  # namespace/name
    verdict: Verdict
    node: str | None  # of its devices; None while it waits, or if they are not on a single node
    requests: tuple[Request, ...]
    given: tuple[Given, ...] = ()  # in the order of the status; `gpus` and `hcas` are behind them
    free: tuple[int, ...] = ()  # positions of GPUs that were free for it, its own included
    was: Set | None = None  # its set; None if it has no GPU, or the machine lacks them
    best: Set | None = None  # the best set that was free; None as above
    # The nearest GPU of the claim to each of its HCAs: position and distance.
    nearest: tuple[tuple[int, int | None, Closeness | None], ...] = ()
    why: tuple[str, ...] = ()  # sentences, the most important first
    cures: tuple[str, ...] = ()  # changes to make, the best first
    lacks: tuple[Lack, ...] = ()  # of a claim that waits, by node and request
    unknown: tuple[str, ...] = ()  # missing facts

    @property
    def gpus(self) -> tuple[int, ...]:
        """The positions of its GPUs, ascending."""
        return tuple(sorted({gpu for each in self.given for gpu in each.gpus}))


def node_of(claim: Object, published: Mapping[str, Sequence[PublishedDevice]]) -> str | None:
    """Return the node that *claim* is allocated on; ``None`` if on none, or on no single one.

    A claim for devices of a node has a node selector that names it (``metadata.name``); otherwise
    it is the node that publishes its devices.
    """
    for term in mappings(claim, "status", "allocation", "nodeSelector", "nodeSelectorTerms"):
        for wanted in mappings(term, "matchFields"):
            values = dig(wanted, "values")
            if wanted.get("key") == "metadata.name" and isinstance(values, list) and values:
                return str(values[0])
    keys = {key_of(result) for result in results_of(claim)}
    return next(
        (node for node, own in published.items() if keys & {device.key for device in own}), None
    )


def requests_of(claim: Object) -> Iterator[Request]:
    """Yield the requests of *claim* in their order, with the alternatives that were taken."""
    results = [text(result, "request") or "" for result in results_of(claim)]
    for request in mappings(claim, "spec", "devices", "requests"):
        name = text(request, "name") or ""
        alternatives = mappings(request, "firstAvailable")
        exactly = dig(request, "exactly")
        each = alternatives or ((exactly,) if isinstance(exactly, Mapping) else (request,))
        wanted = (
            result.partition("/")[2] for result in results if result.partition("/")[0] == name
        )
        known = {text(alternative, "name") for alternative in alternatives}
        matched = next((candidate for candidate in wanted if candidate in known), None)
        taken = next(
            (alternative for alternative in alternatives if text(alternative, "name") == matched),
            each[0],
        )
        is_all = text(taken, "allocationMode") == "All"
        yield Request(
            name=name,
            device_classes=tuple(
                dict.fromkeys(it for it in (text(one, "deviceClassName") for one in each) if it)
            ),
            count=None if is_all else whole(taken, "count") or 1,
            alternatives=tuple(text(alternative, "name") or "" for alternative in alternatives),
            matched=matched,
            has_selectors=bool(mappings(taken, "selectors")),
            tolerates=bool(mappings(taken, "tolerations")),
            is_admin=dig(taken, "adminAccess") is True,
            capacity=_amounts(taken, "capacity", "requests"),
        )


def results_of(claim: Object) -> tuple[Object, ...]:
    """Return the devices allocated to *claim*, from its status; empty while it waits."""
    return mappings(claim, "status", "allocation", "devices", "results")


def key_of(result: Object) -> DeviceKey:
    """Return the key of the device that a *result* of an allocation names."""
    driver, pool, device = (text(result, name) or "" for name in ("driver", "pool", "device"))
    return driver, pool, device


def held_by(claim: Object) -> Iterator[DeviceKey]:
    """Yield the devices that *claim* keeps from others."""
    for result in results_of(claim):
        if result.get("adminAccess") is not True:
            yield key_of(result)


def consumed_of(claim: Object) -> Iterator[tuple[DeviceKey, Mapping[str, int]]]:
    """Yield each shared device of *claim*, and the capacity that it consumes."""
    for result in results_of(claim):
        consumed = _amounts(result, "consumedCapacity")
        if consumed:
            yield key_of(result), consumed


def _amounts(value: Object, *path: str) -> Mapping[str, int]:
    found = dig(value, *path)
    amounts: dict[str, int] = {}
    for name, text_ in found.items() if isinstance(found, Mapping) else ():
        try:
            amounts[str(name)] = quantity(str(text_))
        except ValueError:
            continue
    return amounts


def equal_in(claim: Object, request: str) -> tuple[str, ...]:
    """Return the attributes in which the devices of *request* must be equal, and only they."""
    base = request.partition("/")[0]
    attributes = []
    for constraint in mappings(claim, "spec", "devices", "constraints"):
        over = dig(constraint, "requests") or [base]
        attribute = text(constraint, "matchAttribute")
        if attribute is not None and ({request, base} & {*map(str, over)}):
            attributes.append(attribute)
    return tuple(dict.fromkeys(attributes))


def is_tainted(device: PublishedDevice) -> bool:
    """Return whether a taint keeps *device* from claims without a toleration."""
    return any(not taint.endswith(":None") for taint in device.taints)
