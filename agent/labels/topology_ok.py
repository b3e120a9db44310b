"""Whether the node still has the topology that it was built with, and if not, why."""

from collections.abc import Iterator

from agent.labels.fabric import is_settled
from agent.labels.label import LabelEntry, boolean
from agent.labels.rules import DEFAULT_PREFIX
from agent.model.gpu import Fabric, FabricState
from agent.model.nvlink import NvLink, PeerKind
from agent.model.snapshot import Snapshot
from agent.topology.links import gpus_out_of_nvlink

OK_KEY = f"{DEFAULT_PREFIX}topology-ok"
REASON_KEY = f"{OK_KEY}-reason"
"""Of the annotation that says why."""

_MAX_FAULTS = 12
"""Faults that the reason names one by one: a line that a person reads to its end."""


def topology_reason(snapshot: Snapshot) -> str | None:
    """Return why the topology is not as it was built, for an annotation; ``None`` without a fault.

    A label value has no room for it, and no spaces.
    """
    faults = tuple(_faults(snapshot))
    rest = len(faults) - _MAX_FAULTS
    named = faults[:_MAX_FAULTS] + ((f"and {rest} more",) if rest > 0 else ())
    return "; ".join(named) or None


def _is_ok(snapshot: Snapshot) -> bool | None:
    if not snapshot.gpus:
        return None
    if any(_faults(snapshot)):
        return False
    return True if _is_known(snapshot) else None


def _faults(snapshot: Snapshot) -> Iterator[str]:
    yield from (f"{gpu.name} is lost" for gpu in snapshot.gpus if gpu.is_lost)
    yield from _unlisted(snapshot)
    yield from _links_down(snapshot)
    yield from _fabric_faults(snapshot)
    yield from _unplaced(snapshot)


def _unlisted(snapshot: Snapshot) -> Iterator[str]:
    listed = {gpu.pci for gpu in snapshot.gpus}
    for address in snapshot.pci_gpus or ():
        if address not in listed:
            yield f"{address} is on the bus, but not among the driver's GPUs"


def _links_down(snapshot: Snapshot) -> Iterator[str]:
    """Name the GPUs of which some links are down.

    A PCIe card without a bridge has all its links down, and that is no fault; beside an
    NVSwitch, and on a module (SXM) that has company, it is one. What a GPU in MIG mode says of
    its links is without meaning: it uses none.
    """
    links = snapshot.nvlinks or ()
    has_switch = bool(snapshot.nvswitches) or any(
        link.peer_kind is PeerKind.SWITCH for link in links
    )
    out = gpus_out_of_nvlink(snapshot)
    for gpu in (gpu for gpu in snapshot.gpus if gpu.index not in out):
        own = [link for link in links if link.gpu == gpu.index]
        up = sum(link.is_active is True for link in own)
        is_module = "SXM" in (gpu.product or "") and len(snapshot.gpus) > 1
        if (up or has_switch or is_module) and any(_is_down(link) for link in own):
            yield f"{gpu.name} has {up} of {len(own)} NVLinks up"


def _is_down(link: NvLink) -> bool:
    return link.is_active is False


def _fabric_faults(snapshot: Snapshot) -> Iterator[str]:
    fabrics = [(gpu.name, gpu.fabric) for gpu in snapshot.gpus if gpu.fabric is not None]
    for name, fabric in fabrics:
        if fabric.state is FabricState.COMPLETED and fabric.status:
            yield f"{name} could not join the NVLink fabric (status {fabric.status})"
    cliques = {(f.cluster_uuid, f.clique_id) for _, f in fabrics if _is_member(f)}
    if len(cliques) > 1:
        yield f"the GPUs are in {len(cliques)} NVLink partitions"


def _is_member(fabric: Fabric) -> bool:
    return fabric.state is FabricState.COMPLETED and fabric.status == 0


def _unplaced(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.pci_gpus is None:  # it was not asked
        return
    if sum(len(node.cpus) > 0 for node in snapshot.numa_nodes or ()) > 1:
        for gpu in snapshot.gpus:
            if gpu.numa_node is None:
                yield f"firmware gives {gpu.name} no NUMA node"


def _is_known(snapshot: Snapshot) -> bool:
    """Return whether every fault would have shown."""
    links = snapshot.nvlinks
    is_read = None not in (links, snapshot.numa_nodes, snapshot.pci_gpus)
    is_answered = all(issue.probe != "nvml" for issue in snapshot.issues)
    out = gpus_out_of_nvlink(snapshot)
    are_told = all(link.is_active is not None for link in links or () if link.gpu not in out)
    return is_read and is_answered and are_told and is_settled(snapshot)


ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key=OK_KEY,
        meaning="`false` where a GPU is lost or missing from the driver, NVLinks are down, the "
        "NVLink fabric refused a GPU, or firmware places a GPU on no NUMA node. The annotation "
        "`topology-ok-reason` says which. Absent where it cannot be told.",
        source="NVML, PCI and NUMA nodes in sysfs",
        cardinality="2",
        value=lambda snapshot: boolean(_is_ok(snapshot)),
    ),
)
