"""Why a ResourceClaim got the devices that it got, what was better, and what to change.

What the allocator does: it goes through the requests of a claim in their order and through the
alternatives of each, and takes the first devices, in the order of the slices, with which all
requests and constraints are met (k8s.io/dynamic-resource-allocation v0.36.3 ``structured``). It
compares no sets. Selectors are CEL, which is not evaluated here: which alternative matched is read
from the claim's status, where results name ``request/alternative``.

Claims that are gone are not known. What they held when this claim was allocated counts as free.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
    """Return what became of *claim*, and why.

    Args:
        claim: a ResourceClaim.
        published: the devices of each node.
        others: the other claims of the cluster; the claim itself may be among them. ``None`` where
            they are not known: then all that is published counts as free.
        machine: the claim's node; ``None`` where it is not known, or the claim waits.
        pools: those of the cluster; ``None`` where nothing is known of them but their devices.

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
        found = waiting(claim, requests, published, rest, _pools_for(requests, published, pools))
        return replace(found, unknown=(*unread, *found.unknown))
    node = node_of(claim, published)
    # Devices of other nodes have the same PCI addresses.
    devices = published.get(node, ()) if node is not None else ()
    found = Allocated(claim, requests, devices, rest, machine).explained(node)
    return replace(found, unknown=(*unread, *found.unknown))


def _pools_for(
    requests: Sequence[Request],
    published: Mapping[str, Sequence[PublishedDevice]],
    pools: Pools | None,
) -> Pools:
    """Return those of *pools* whose devices the classes of *requests* may select.

    Of a pool whose nodes are not known only the driver is known.
    """
    if pools is None:
        return Pools()
    selected = {
        it.key[:2]
        for own in published.values()
        for it in own
        if any(may_match(it, request) for request in requests)
    }
    nameless = [PublishedDevice(driver=it.driver, pool=it.name, name="") for it in pools.unplaced]
    return Pools(
        known=tuple(it for it in pools.known if (it.driver, it.name) in selected),
        unplaced=tuple(
            pool
            for pool, device in zip(pools.unplaced, nameless, strict=True)
            if any(may_match(device, request) for request in requests)
        ),
    )
