"""Which RDMA resources a node offers, and their devices.

A device is one HCA and a token: ``0000:18:00.0::3`` is the fourth container's share of the HCA at
that address. The kubelet counts tokens and keeps NUMA nodes; a token's id contains its HCA, so that
a choice among tokens is a choice among HCAs.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import (
    PluginDevice,
    copies,
    list_bytes,
    most_that_fit,
    size_problem,
    with_nodes,
)
from nodetopo.deviceplugin.resources import Refusal
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.model.digits import is_digits
from nodetopo.model.hca import Hca
from nodetopo.model.node import REPLICA
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import KnownHca
from nodetopo.rdma.pools import Pool, SharingMode
from nodetopo.rdma.selection import has_verbs, select


class RdmaResource(Struct, frozen=True, kw_only=True):
    """One pool with its devices."""

    pool: Pool
    devices: tuple[PluginDevice, ...]  # by PCI address of the HCA, then by token
    # By the part of a device id that names the HCA; lost ones included.
    hcas: Mapping[str, Hca]
    positions: Mapping[str, int]  # of those HCAs in the offered snapshot
    # Ids of each HCA's devices, the lowest token first; no entry for an HCA without any.
    tokens: Mapping[str, Sequence[str]]
    unhealthy: frozenset[str] = frozenset()  # those HCAs that are not handed out
    exception: str | None = None  # why they are offered although HCAs like them are left out

    @property
    def name(self) -> str:
        return self.pool.resource

    def with_unhealthy(self, keys: Iterable[str]) -> "RdmaResource":
        """Return the resource with the HCAs *keys* unhealthy as well.

        A device of a shared pool stands for the whole pool: it is Unhealthy once every HCA is.
        """
        unhealthy = self.unhealthy.union(keys).intersection(self.hcas)
        is_any_left = self.pool.mode is SharingMode.SHARED and len(unhealthy) < len(self.hcas)
        devices = tuple(
            replace(device, is_healthy=is_any_left or key_of(device.id) not in unhealthy)
            for device in self.devices
        )
        return replace(self, devices=devices, unhealthy=unhealthy)


class RdmaOffer(Struct, frozen=True, kw_only=True):
    """Every pool of a node with an HCA, and the pools that are not offered."""

    resources: tuple[RdmaResource, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def offer_hcas(
    snapshot: Snapshot,
    known: Sequence[KnownHca],
    pools: Sequence[Pool],
    unhealthy: Collection[str] = frozenset(),
    taken: Collection[str] = frozenset(),
    *,
    members: Mapping[str, Collection[str]] = MappingProxyType({}),
    numa: NumaReport = NumaReport.NUMA,
    last: Sequence[RdmaResource] = (),
) -> RdmaOffer:
    """Return the devices of *pools*; *unhealthy* and *taken* are keys of HCAs.

    *taken* HCAs are in no pool, because each is paired with a GPU. *members* has, by resource, the
    keys of HCAs that were offered before: they stay, whatever a snapshot says of them, since pods
    can have them; without a uverbs device they are Unhealthy.

    *snapshot* has the HCAs of *known*, in the same order, so that a lost HCA keeps its place and
    counts as unhealthy. A pool advertises ``rdmaHcaMax`` devices, spread evenly over its HCAs; an
    exclusive one advertises each HCA once. A pool without an HCA is not offered. A pool with more
    devices than a kubelet reads is refused, and advertises as many as in *last*, the resources that
    were offered before.
    """
    hcas = snapshot.hcas or ()
    keys = [hca.key for hca in known]
    stay = {
        name: frozenset(at for at, key in enumerate(keys) if key in own)
        for name, own in members.items()
    }
    selection = select(snapshot, pools, stay)
    bad = {hca.key for hca in known if hca.is_lost or not has_verbs(hca.hca)}.union(unhealthy)
    refusals = [
        Refusal(
            resource=None,
            reason=f"{each.hca} is not in {each.resource or 'any pool'}: {each.reason}",
        )
        for each in selection.exclusions
    ]
    resources = []
    for asked in pools:
        own = [at for at in selection.hcas[asked.resource] if keys[at] not in taken]
        has_numa = asked.reports_numa and (
            asked.mode is not SharingMode.SHARED or _is_on_one_node([hcas[at] for at in own])
        )
        whole = with_nodes(
            [
                PluginDevice(id=keys[at], numa_nodes=_nodes(hcas[at]) if has_numa else ())
                for at in own
            ],
            snapshot,
        )

        def size_of(most: int) -> int:
            tokens = _tokens(replace(asked, most=most), len(own))  # noqa: B023 - called at once
            return list_bytes(list(zip(whole, tokens, strict=True)), numa)  # noqa: B023 - likewise

        before = [
            replace(asked, most=most_that_fit(one.pool.most, size_of))
            for one in last
            if one.name == asked.resource
        ]
        for pool in (asked, *before):
            tokens = tuple(_tokens(pool, len(own)))
            size = size_problem(list(zip(whole, tokens, strict=True)), numa, "rdmaHcaMax")
            if size is None:
                break
            refusals.append(Refusal(resource=pool.resource, reason=f"{pool.resource}: {size}"))
        else:
            continue
        problem = None
        if not own:
            left_out = sum(each.resource == pool.resource for each in selection.exclusions)
            problem = _nothing_left(left_out, paired=len(selection.hcas[pool.resource]))
        elif not any(tokens):
            problem = "rdmaHcaMax is 0"
        if problem is not None:
            # No fault of the node: a file for a whole cluster has pools that some nodes lack.
            refusals.append(Refusal(resource=None, reason=f"{pool.resource}: {problem}"))
            continue
        if not all(tokens) and pool.mode is not SharingMode.SHARED:
            idle = ", ".join(
                hcas[at].name for at, count in zip(own, tokens, strict=True) if not count
            )
            reason = f"{pool.resource}: rdmaHcaMax leaves no device for {idle}"
            refusals.append(Refusal(resource=None, reason=reason))
        devices = [
            token
            for device, count in zip(whole, tokens, strict=True)
            for token in copies(device, count)
        ]
        resource = RdmaResource(
            pool=pool,
            devices=tuple(devices),
            hcas=MappingProxyType({keys[at]: hcas[at] for at in own}),
            positions=MappingProxyType({keys[at]: at for at in own}),
            tokens=MappingProxyType(_by_hca(devices)),
            exception=selection.exceptions.get(pool.resource),
        )
        resources.append(resource.with_unhealthy(bad))
    return RdmaOffer(resources=tuple(resources), refusals=tuple(refusals))


def key_of(device: str) -> str:
    """Return the part of a device's id that names the HCA."""
    return device.rpartition(REPLICA)[0]


def token_of(device: str) -> int:
    """Return the number of a device's token; an invalid one sorts last."""
    number = device.rpartition(REPLICA)[2]
    return int(number) if is_digits(number) else sys.maxsize


def _tokens(pool: Pool, hcas: int) -> Iterator[int]:
    """Yield how many devices each of *hcas* HCAs gets."""
    if pool.mode is SharingMode.EXCLUSIVE:
        yield from (int(number < pool.most) for number in range(hcas))
        return
    for number in range(hcas):
        yield pool.most // hcas + (number < pool.most % hcas)


def _nothing_left(left_out: int, *, paired: int) -> str:
    """Return why a pool has no HCA: of those that match, *left_out* and *paired* with a GPU."""
    counts = {"left out": left_out, "paired with a GPU": paired}
    if not any(counts.values()):
        return "no HCA of this node matches it"
    became = " and ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"no HCA that matches it is free: {became}"


def _by_hca(devices: Iterable[PluginDevice]) -> Mapping[str, Sequence[str]]:
    tokens: dict[str, list[str]] = {}
    for device in devices:
        tokens.setdefault(key_of(device.id), []).append(device.id)
    return tokens


def _nodes(hca: Hca) -> tuple[int, ...]:
    return () if hca.numa_node is None else (hca.numa_node,)


def _is_on_one_node(hcas: Sequence[Hca]) -> bool:
    """Return whether a container that gets all of *hcas* is near one NUMA node.

    Otherwise one NUMA node would be wrong, and all of them would keep the Topology Manager from
    ever giving the container's GPUs more than one (kubelet 1.36 pkg/kubelet/cm/
    topologymanager/policy.go: resources of one container must prefer the same nodes).
    """
    return len({hca.numa_node for hca in hcas}) == 1
