"""Why a ResourceClaim got its devices, with better sets and changes to make.

The allocator goes through the requests of a claim in order and through the alternatives of each,
and takes the first devices, in the order of the slices, that satisfy all requests and constraints
(k8s.io/dynamic-resource-allocation v0.36.3 ``structured``). It compares no sets. Selectors are CEL,
which is not evaluated here: the matched alternative is read from the claim's status, where results
name ``request/alternative``.

Deleted claims are unknown. Their devices count as free at this claim's allocation.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import Object, dig, full_name
from nodetopo.model.dra import PublishedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.claims.allocated import Allocated
from nodetopo.tools.cluster.claims.claim import Explained, Pools, Request, node_of, requests_of
from nodetopo.tools.cluster.claims.devices import may_match
from nodetopo.tools.cluster.claims.waiting import waiting


def explained(
    claim: Object,
    published: Mapping[str, Sequence[PublishedDevice]],
    others: Iterable[Object] | None,
    machine: Snapshot | None,
    *,
    pools: Pools | None = None,
) -> Explained:
    """Return the outcome of *claim*, with reasons.

    Args:
        others: the other claims of the cluster; can include the claim itself. ``None`` if unknown:
            then all published devices count as free.
        machine: the claim's node; ``None`` if unknown, or while the claim waits.
        pools: of the cluster; ``None`` if only their devices are known.

    Raises:
        DecodeError: *claim* has no requests.
    """
    name = full_name(claim)
    requests = tuple(requests_of(claim))
    if not requests:
        raise DecodeError("spec.devices.requests", "a claim without requests asks for nothing")
    rest = tuple(each for each in others or () if full_name(each) != name)
    unread = () if others is not None else ("what other claims have: all else counts as free",)
    if not isinstance(dig(claim, "status", "allocation"), Mapping):
        explanation = waiting(
            claim, requests, published, rest, _pools_for(requests, published, pools)
        )
        return replace(explanation, unknown=(*unread, *explanation.unknown))
    node = node_of(claim, published)
    # Devices of other nodes have the same PCI addresses.
    devices = published.get(node, ()) if node is not None else ()
    explanation = Allocated(claim, requests, devices, rest, machine).explained(node)
    return replace(explanation, unknown=(*unread, *explanation.unknown))


def _pools_for(
    requests: Sequence[Request],
    published: Mapping[str, Sequence[PublishedDevice]],
    pools: Pools | None,
) -> Pools:
    """Return the *pools* whose devices the classes of *requests* could select.

    For a pool with unknown nodes, only the driver is known.
    """
    if pools is None:
        return Pools()
    selected = {
        device.key[:2]
        for own in published.values()
        for device in own
        if any(may_match(device, request) for request in requests)
    }
    nameless = [
        PublishedDevice(driver=pool.driver, pool=pool.name, name="") for pool in pools.unplaced
    ]
    return Pools(
        known=tuple(pool for pool in pools.known if (pool.driver, pool.name) in selected),
        unplaced=tuple(
            pool
            for pool, device in zip(pools.unplaced, nameless, strict=True)
            if any(may_match(device, request) for request in requests)
        ),
    )
