"""A waiting claim: each node's lack of the requested devices."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodetopo.formats.fields import Object, full_name
from nodetopo.model.dra import DeviceKey, PublishedDevice, PublishedPool
from nodetopo.tools.cluster.claims.claim import (
    EXPORT,
    Explained,
    Lack,
    Pools,
    Request,
    Verdict,
    equal_in,
    held_by,
    is_tainted,
)
from nodetopo.tools.cluster.claims.devices import has_room, may_match, shares_of
from nodetopo.tools.cluster.node import folded

_GROUPS = "devices in compatibility groups: a scheduler without DRADeviceCompatibilityGroups"


def waiting(
    claim: Object,
    requests: tuple[Request, ...],
    published: Mapping[str, Sequence[PublishedDevice]],
    others: Sequence[Object],
    pools: Pools,
) -> Explained:
    """Return each node's lack for the waiting *claim*, given the devices held by *others*."""
    broken = {(pool.driver, pool.name): pool for pool in pools.known if not pool.is_complete}
    lacks = tuple(_Lacks(claim, others, broken).of(requests, published))
    why = [f"{_incomplete(pool)}: nothing is allocated of it" for pool in broken.values()]
    why += [_elsewhere(pool) for pool in pools.unplaced]
    why += [
        f"{pool.title} has {_GROUPS} takes nothing of it" for pool in pools.known if pool.has_groups
    ]
    certain = len(why)
    for request in requests:
        own = [lack for lack in lacks if lack.request == request.name]
        if not own and not certain:
            classes = " or ".join(request.device_classes)
            why.append(f"{request.name}: no node publishes devices that the class {classes} names")
        elif own and not any(lack.is_enough for lack in own):
            why.append(f"{request.name}: no node has {_wanted(request)} free as it asks")
        if request.is_admin:
            why.append(
                f"{request.name}: admin access gets devices whoever has them, but for those with "
                "shared counters: the scheduler of Kubernetes 1.36 counts them for it, too"
            )
    if not why:
        nodes = sorted({lack.node for lack in lacks if lack.is_enough})
        why.append(
            f"by count {nodes[0] if len(nodes) == 1 else f'{len(nodes)} nodes'} would do: its "
            "selectors, other requests, or the pod that uses it are in the way"
        )
    return Explained(
        claim=full_name(claim),
        verdict=Verdict.WAITING,
        node=None,
        requests=requests,
        why=tuple(dict.fromkeys(why)),
        cures=tuple(_cures(lacks, requests, tuple(broken.values()))),
        lacks=lacks,
        unknown=("selectors of classes and requests, which are not evaluated here",),
    )


def _cures(
    lacks: Sequence[Lack], requests: Sequence[Request], broken: Sequence[PublishedPool]
) -> Iterator[str]:
    for driver in dict.fromkeys(pool.driver for pool in broken):
        nodes = folded({node for pool in broken if pool.driver == driver for node in pool.nodes})
        yield f"see why the driver {driver} on {nodes or 'its nodes'} does not publish the rest"
    if any(request.is_admin for request in requests):
        yield "for monitoring claim devices without counters, such as the class admin.nodetopo.io"
    is_short = not any(lack.is_enough for lack in lacks)
    if is_short and any(lack.largest and lack.free >= (lack.wanted or 1) for lack in lacks):
        yield f"alternatives take what is left where one place is too small: `{EXPORT}`"
    yield "`kubectl describe pod` of a pod that uses it: the scheduler says what it tried"


def _incomplete(pool: PublishedPool) -> str:
    where = f" on {folded(pool.nodes)}" if pool.nodes else ""
    return f"{pool.title}{where} has {pool.slices} of its {pool.expected} slices"


def _elsewhere(pool: PublishedPool) -> str:
    by = " and ".join(pool.selects_by)
    return f"{pool.title} has {pool.devices} devices for nodes by {by}, which are not counted here"


def _wanted(request: Request) -> str:
    return "all devices" if request.count is None else f"{request.count} devices"


class _Lacks:
    """Counts the devices that a claim could get, given the devices held by *others*."""

    def __init__(
        self,
        claim: Object,
        others: Sequence[Object],
        broken: Mapping[tuple[str, str], PublishedPool],
    ) -> None:
        self._claim = claim
        self._broken = broken
        self._shares = shares_of(others)
        self._holders: dict[DeviceKey, list[str]] = {}
        for other in others:
            for key in held_by(other):
                self._holders.setdefault(key, []).append(full_name(other))

    def of(
        self, requests: Sequence[Request], published: Mapping[str, Sequence[PublishedDevice]]
    ) -> Iterator[Lack]:
        for request in requests:
            for node, devices in published.items():
                own = [device for device in devices if may_match(device, request)]
                if own:
                    yield self._lack(request, node, own)

    def _lack(self, request: Request, node: str, own: Sequence[PublishedDevice]) -> Lack:
        allocatable = [device for device in own if device.key[:2] not in self._broken]
        in_use = [device for device in allocatable if self._is_in_use(device, request)]
        used = {device.key for device in in_use}
        rest = [device for device in allocatable if device.key not in used]
        tainted = [device for device in rest if not request.tolerates and is_tainted(device)]
        closed = {device.key for device in tainted}
        free = [device for device in rest if device.key not in closed]
        return Lack(
            node=node,
            request=request.name,
            wanted=request.count,
            free=len(free),
            in_use=len(in_use),
            tainted=len(tainted),
            largest={
                attribute: max(_counts(free, attribute), default=0)
                for attribute in equal_in(self._claim, request.name)
            },
            holders=tuple(
                sorted({name for device in in_use for name in self._holders[device.key]})
            ),
        )

    def _is_in_use(self, device: PublishedDevice, request: Request) -> bool:
        """Return whether others have *device*, or too much of a shared one."""
        if device.key not in self._holders or request.is_admin:
            return False
        shares = self._shares.get(device.key, {})
        return not device.is_shared or not has_room(device, request, shares)


def _counts(devices: Iterable[PublishedDevice], attribute: str) -> Iterable[int]:
    return Counter(value for device in devices for value in device.values(attribute)).values()
