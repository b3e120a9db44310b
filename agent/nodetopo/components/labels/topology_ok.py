"""The check that the node still has its original topology, with the reason if not."""

from collections.abc import Iterator

from nodetopo.components.labels.label import Label, label
from nodetopo.components.labels.rules import DEFAULT_PREFIX
from nodetopo.model.gpu import FabricState
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import is_settled
from nodetopo.topology.links import gpus_out_of_nvlink, loops, training_gpus
from nodetopo.topology.wiring import modules_without_links, wired_gpus

OK_KEY = f"{DEFAULT_PREFIX}topology-ok"
REASON_KEY = f"{OK_KEY}-reason"
"""The annotation with the reason."""

_MAX_FAULTS = 12
"""Faults that the reason names, so that a person reads the line to its end."""


def topology_reason(snapshot: Snapshot) -> str | None:
    """Return why the topology is not as it was built, for an annotation; ``None`` without a fault.

    A label value has no room for it, and no spaces.
    """
    faults = tuple(_faults(snapshot))
    rest = len(faults) - _MAX_FAULTS
    named = faults[:_MAX_FAULTS] + ((f"and {rest} more",) if rest > 0 else ())
    return "; ".join(named) or None


@label(
    OK_KEY,
    "`false` if a GPU is lost or missing from the driver, NVLinks are down, the "
    "NVLink fabric rejected a GPU, or firmware places a GPU on no NUMA node. The "
    "annotation `topology-ok-reason` names the cause. Absent if unknown.",
    "NVML, PCI and NUMA nodes in sysfs",
    "2",
)
def is_ok(snapshot: Snapshot) -> bool | None:
    """Return whether the node has no fault; ``None`` if one may be hidden."""
    if not snapshot.gpus:
        return None
    if any(_faults(snapshot)):
        return False
    links, out = snapshot.nvlinks, gpus_out_of_nvlink(snapshot)
    is_read = None not in (links, snapshot.numa_nodes, snapshot.pci_gpus)
    is_answered = all(issue.probe != "nvml" for issue in snapshot.issues)
    has_states = all(link.is_active is not None for link in links or () if link.gpu not in out)
    has_ends = not loops(snapshot)
    has_links = not modules_without_links(snapshot)
    is_known = (
        is_read and is_answered and has_states and has_ends and has_links and is_settled(snapshot)
    )
    return True if is_known else None


def _faults(snapshot: Snapshot) -> Iterator[str]:
    yield from (f"{gpu.name} is lost" for gpu in snapshot.gpus if gpu.is_lost)
    listed = {gpu.pci for gpu in snapshot.gpus}
    for address in snapshot.pci_gpus or ():
        if address not in listed:
            yield f"{address} is on the bus, but not among the driver's GPUs"
    yield from _links_down(snapshot)

    fabrics = [(gpu.name, gpu.fabric) for gpu in snapshot.gpus if gpu.fabric is not None]
    completed = [(name, it) for name, it in fabrics if it.state is FabricState.COMPLETED]
    for name, fabric in completed:
        if fabric.status:
            yield f"{name} could not join the NVLink fabric (status {fabric.status})"
    cliques = {(it.cluster_uuid, it.clique_id) for _, it in completed if it.status == 0}
    if len(cliques) > 1:
        yield f"the GPUs are in {len(cliques)} NVLink partitions"

    # Without the census of PCI the NUMA nodes of GPUs were not read either.
    has_nodes = sum(len(node.cpus) > 0 for node in snapshot.numa_nodes or ()) > 1
    for gpu in snapshot.gpus if snapshot.pci_gpus is not None and has_nodes else ():
        if gpu.numa_node is None:
            yield f"firmware gives {gpu.name} no NUMA node"


def _links_down(snapshot: Snapshot) -> Iterator[str]:
    """Name the GPUs with wired links that are down."""
    judged = wired_gpus(snapshot) - gpus_out_of_nvlink(snapshot) - training_gpus(snapshot)
    for gpu in (gpu for gpu in snapshot.gpus if gpu.index in judged):
        own = [link for link in snapshot.nvlinks or () if link.gpu == gpu.index]
        if any(link.is_active is False for link in own):
            up = sum(link.is_active is True for link in own)
            yield f"{gpu.name} has {up} of {len(own)} NVLinks up"


ENTRIES: tuple[Label, ...] = (is_ok,)
