"""Rules on the HCAs of a node together: open to programs, alike, and shared out among the GPUs."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from nodetopo.checks.inputs import (
    adapters,
    because,
    gpu_label,
    hca_label,
    missing_gpus,
    missing_hcas,
    missing_machine,
    no_adapters,
    no_gpus,
    own_adapters,
    unknown_of,
    virtual_machine,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.rdma_ports import is_efa
from nodetopo.model.hca import Hca, LinkLayer
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciFunction
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.rails import layer_of, nearest_by_gpu, rates
from nodetopo.topology.affinity import hca_closeness

DIRECTORY = "/dev/infiniband"

CONNECTION_MANAGER = "rdma_cm"
"""The device of the kernel module rdma_ucm (drivers/infiniband/core/ucma.c)."""

_NUMBER = re.compile(r"[0-9]{1,9}")


@rule("RDM-012", Severity.WARNING)
def connection_manager(snapshot: Snapshot) -> Judgement:
    """Find that the device of the connection manager is not there.

    Where the whole directory is missing, it is the agent that sees too little of the host.
    """
    reason = no_adapters(snapshot)
    if reason is None and snapshot.hcas and all(map(is_efa, adapters(snapshot))):
        reason = "EFA, which has no connection manager"
    if reason:
        yield Skip(reason)
        return
    nodes = (snapshot.host.infiniband_devices if snapshot.host else None) or ()
    modules = snapshot.kernel.modules if snapshot.kernel else None
    if nodes and CONNECTION_MANAGER not in nodes:
        is_unloaded = modules is not None and "rdma_ucm" not in modules
        yield Finding(
            subject=f"{DIRECTORY}/{CONNECTION_MANAGER}",
            observed="the module rdma_ucm is not loaded" if is_unloaded else "not there",
            expected="a device node, which the kernel module rdma_ucm makes",
        )
    yield from missing_hcas(snapshot)
    if not nodes:
        yield Missing(DIRECTORY, because(snapshot, "host"))


@rule("RDM-013", Severity.INFO)
def management_devices(snapshot: Snapshot) -> Judgement:
    """Find InfiniBand HCAs without a umad device.

    A source that does not state an adapter's kind is text, which names no devices.
    """
    every = adapters(snapshot)
    unread = [hca.name for hca in every if layer_of(hca) is None and not is_efa(hca)]
    judged = [hca for hca in every if layer_of(hca) is LinkLayer.INFINIBAND]
    reason = no_adapters(snapshot)
    if reason is None and snapshot.hcas is not None and not unread and not judged:
        reason = "no InfiniBand HCA"
    if reason:
        yield Skip(reason)
        return
    silent = []
    for hca in judged:
        if not hca.char_devices and hca.kind is None:
            silent.append(hca.name)
        elif not any(name.startswith("umad") for name in hca.char_devices):
            yield Finding(
                subject=hca_label(hca),
                observed="no umad device",
                expected="one, which the kernel module ib_umad makes",
            )
    yield from missing_hcas(snapshot)
    yield from unknown_of("link layer", unread)
    yield from unknown_of("umad devices", silent)


@rule("RDM-014", Severity.WARNING)
def firmware(snapshot: Snapshot) -> Judgement:
    """Find HCAs whose firmware differs from most HCAs of their model, in a tie from the newest."""
    models: dict[object, list[Hca]] = defaultdict(list)
    for hca in own_adapters(snapshot):
        if not is_efa(hca):
            models[_model(hca)].append(hca)
    alike = [hcas for hcas in models.values() if len(hcas) > 1]
    reason = no_adapters(snapshot)
    if reason is None and snapshot.hcas is not None and not alike:
        reason = "no two HCAs of one model"
    if reason:
        yield Skip(reason)
        return
    for hcas in alike:
        counts = Counter(hca.firmware for hca in hcas if hca.firmware is not None)
        if len(counts) > 1:
            usual = max(counts, key=lambda release: (counts[release], _release(release)))
            for hca in hcas:
                if hca.firmware not in (None, usual):
                    yield Finding(
                        subject=hca_label(hca),
                        observed=hca.firmware or "",
                        expected=f"{usual}, as its peers of the same model have",
                    )
    yield from missing_hcas(snapshot)
    silent = (hca.name for hcas in alike for hca in hcas if hca.firmware is None)
    yield from unknown_of("firmware release", silent)


@rule("RDM-015", Severity.WARNING)
def protocols(snapshot: Snapshot) -> Judgement:
    """Find GPUs whose nearest HCAs all lack the protocol of most GPUs' nearest HCAs."""
    hcas = snapshot.hcas or ()
    nearest = nearest_by_gpu(snapshot)
    layers = {
        gpu: {layer_of(hcas[at]) for at in group if not is_efa(hcas[at])}
        for gpu, group in (nearest or {}).items()
    }
    reason = no_gpus(snapshot) or no_adapters(snapshot)
    if reason is None and len(snapshot.gpus) == 1:
        reason = "one GPU"
    if reason is None and nearest and not any(layers.values()):
        reason = "EFA, which has its own protocol"
    if reason:
        yield Skip(reason)
        return
    votes = Counter(layer for each in layers.values() for layer in each if layer is not None)
    usual = max(votes, key=lambda it: (votes[it], it is LinkLayer.INFINIBAND), default=None)
    most = max(votes.values(), default=0)
    for gpu in snapshot.gpus:
        spoken = layers.get(gpu.index) or {usual}
        if usual not in spoken and None not in spoken:
            names = ", ".join(hcas[at].name for at in sorted((nearest or {})[gpu.index]))
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"nearest is {names}, {', '.join(sorted(map(str, spoken)))}",
                expected=f"{usual}, as the nearest of {most} other GPUs",
            )
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    if snapshot.hcas is not None:
        yield from unknown_of("distance to the HCAs", _unplaced(snapshot, nearest))
    near = {at for group in (nearest or {}).values() for at in group}
    silent = (hcas[at].name for at in sorted(near) if layer_of(hcas[at]) is None)
    yield from unknown_of("link layer", silent)


@rule("RDM-016", Severity.WARNING)
def shares(snapshot: Snapshot) -> Judgement:
    """Find GPUs with a smaller share of their nearest HCAs' bandwidth than others.

    RDM-005 judges GPUs without an HCA behind their host bridge.
    """
    hcas = snapshot.hcas or ()
    nearest, distances = nearest_by_gpu(snapshot), hca_closeness(snapshot)
    c2c = {gpu.index for gpu in snapshot.gpus if gpu.c2c and gpu.c2c.is_enabled}
    near = {
        gpu: group
        for gpu, group in (nearest or {}).items()
        if distances[gpu, min(group)] <= (Closeness.NODE if gpu in c2c else Closeness.PHB)
    }
    unplaced = _unplaced(snapshot, nearest) if snapshot.hcas is not None else []
    reason = no_gpus(snapshot) or no_adapters(snapshot) or virtual_machine(snapshot)
    if reason is None and snapshot.hcas is not None and len(near) < 2 and not unplaced:
        reason = "no two GPUs with an HCA behind their host bridges"
    if reason:
        yield Skip(reason)
        return
    users = Counter(at for group in near.values() for at in group)
    # A port that is down states no rate of its link.
    unrated = sorted(at for at in users if not rates(hcas[at]))
    share = {
        gpu: sum(max(rates(hcas[at])) / users[at] for at in group)
        for gpu, group in near.items()
        if not group & {*unrated}
    }
    best = max(share, key=lambda gpu: (share[gpu], -gpu), default=0)
    for gpu in snapshot.gpus:
        own = share.get(gpu.index)
        if own is not None and round(own) < round(share[best]):
            group = sorted(near[gpu.index])
            most = max(users[at] for at in group)
            names = ", ".join(hcas[at].name for at in group)
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"{own:.0f} Gb/s: {names}" + (f" for {most} GPUs" if most > 1 else ""),
                expected=f"{share[best]:.0f} Gb/s, as GPU{best} has",
            )
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    yield from missing_machine(snapshot)
    yield from unknown_of("distance to the HCAs", unplaced)
    yield from unknown_of("rate", (hcas[at].name for at in unrated))


def _unplaced(snapshot: Snapshot, nearest: Mapping[int, frozenset[int]] | None) -> list[str]:
    """Return the GPUs of which no distance to an HCA is known."""
    return [gpu.name for gpu in snapshot.gpus if nearest is None or gpu.index not in nearest]


def _model(hca: Hca) -> tuple[str | None, ...]:
    """Return the identity of an HCA's model; without any, the HCA's own name."""
    function = hca.function or PciFunction()
    ids = function.vendor, function.device, function.subsystem_vendor, function.subsystem_device
    known = (hca.board_id, *ids)
    return (hca.kind, *known) if any(known) else (hca.name,)


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(text))
