"""Remarks on exported claims: the nodes they are for, and their limits."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodetopo.model.dra import DRIVER, NUMA_NODE, NVIDIA_DRIVER, PCI_BUS_ID
from nodetopo.tools.cluster.export.claim import (
    CPU_REQUEST,
    MATCHES_LISTS,
    MOST_RESULTS,
    NIC_REQUEST,
    Claims,
)
from nodetopo.tools.cluster.export.claim_options import PLAIN, ClaimOptions
from nodetopo.tools.cluster.export.record import Remark, hint, warning
from nodetopo.tools.cluster.export.shapes import Shape
from nodetopo.tools.cluster.levels import named
from nodetopo.tools.cluster.node import folded

SLOW_PAIRS = 6
"""GPUs with a NIC each from which on a claim that cannot be met holds the scheduler up: measured
with the allocator of Kubernetes 1.36.3, 0.6 s at 6 pairs and 3.6 s at 8."""

SLOW_CPUS = 16
"""Number of individual CPU devices from which an unsatisfiable claim stalls the scheduler: measured
with that allocator, 0.8 s for 16 CPUs with 14 free, 7 s for 20 with 18 free.
"""

_SINCE: Mapping[str, str] = {
    NVIDIA_DRIVER: "NVIDIA's driver publishes it from v0.5 on",
    "dra.net": "dranet publishes it after v1.4.0",
    "dra.cpu": "dra-driver-cpu publishes it after v0.2.0",
}
"""When drivers came to publish the standard NUMA node, :mod:`offered`."""

Specs = Mapping[int, Mapping[str, Any]]


def written(labels: Mapping[str, str]) -> str:
    """Return *labels* as ``kubectl -l`` takes them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def shape_remarks(
    shape: Shape, claims: Claims, specs: Specs, options: ClaimOptions
) -> Iterator[Remark]:
    """Yield remarks on one shape and its claims, by size."""
    if shape.selector:
        yield hint(f"{shape.title}: for nodes with {written(shape.selector)}")
    elif shape.nodes:
        yield hint(f"{shape.title}: for {folded(shape.nodes)}")
    if options.driver == DRIVER:
        yield from _set_remarks(shape, specs, options)
    else:
        yield from _gpu_remarks(shape, claims, specs, options)
    if shape.offered.has_lists:
        yield from _list_remarks(shape, options)
    if options.nic_driver is not None:
        yield from _nic_remarks(shape, claims, specs, options)
    if options.cpu_driver is not None:
        yield from _cpu_remarks(shape, claims, specs, options)


def use_remarks(options: ClaimOptions) -> Iterator[Remark]:
    if options.form != PLAIN:
        yield hint("Kueue and KAI refuse alternatives: for them use --form plain")
    if options.driver == DRIVER and options.form == PLAIN:
        yield hint("KAI counts a set as one GPU")
    if options.cpu_driver is not None:
        text = f"pods request the CPUs of their claim as cpu, too: {options.cpus} for each GPU"
        yield hint(f"{text}, with equal limits")
    yield hint("pods name a template in spec.resourceClaims[].resourceClaimTemplateName")


def _gpu_remarks(
    shape: Shape, claims: Claims, specs: Specs, options: ClaimOptions
) -> Iterator[Remark]:
    offered, count = shape.offered, len(shape.snapshot.gpus)
    if offered.has_shares:
        text = f"{shape.title}: claims share its GPUs (consumable capacity)"
        yield warning(f"{text}: each gets a part of a GPU, of which no set is better")
    partitions = [str(size) for size in specs if claims.partition(size) is not None]
    if partitions:
        text = f"{shape.title}: Fabric Manager activates GPUs by partition"
        yield hint(f"{text}: claims for {named(partitions, ' or ')} GPUs match one")
    if not shape.has_nvlinks and options.form != PLAIN:
        text = (
            f"{shape.title}: its NVLinks are not published and no bundled machine has this layout"
        )
        cure = "ranked by NUMA nodes and PCIe roots alone; `nodetopo capture` a node for --snapshot"
        yield hint(f"{text}: {cure}")
    if count == 1:
        return
    if PCI_BUS_ID not in offered.gpus:
        text = f"{shape.title}: its GPUs do not have {PCI_BUS_ID}"
        yield warning(f"{text}: a claim cannot name a good set of them")
    if NUMA_NODE not in offered.gpus:
        text = f"{shape.title}: its GPUs do not have {_numa_node(options.driver)}"
        what = (
            "their places are those of the bundled machine"
            if claims.numa_sizes
            else "a claim does not keep to a NUMA node"
        )
        yield warning(f"{text}: {what}")
    elif not claims.numa_sizes:
        yield warning(f"{shape.title}: the NUMA nodes of its GPUs are not known")
    strict = [str(size) for size, spec in specs.items() if NUMA_NODE in _strict(spec)]
    if strict and not offered.is_known and options.driver == NVIDIA_DRIVER:
        text = f"{shape.title}: a claim for {named(strict, ' or ')} GPUs waits for ever"
        what = f"where they do not have {_numa_node(NVIDIA_DRIVER)}"
        yield warning(f"{text} {what}: make it from the slices of your cluster")
    if options.form == PLAIN:
        waiting = [str(size) for size in specs if claims.fits_numa_node(size)]
        waiting = [size for size in waiting if specs[int(size)]["devices"].get("constraints")]
        if waiting:
            text = f"{shape.title}: a claim for {named(waiting, ' or ')} GPUs waits"
            yield hint(f"{text} while no place of its constraint has as many free")


def _list_remarks(shape: Shape, options: ClaimOptions) -> Iterator[Remark]:
    """Yield the limits of claims caused by NUMA nodes in lists."""
    text = f"{shape.title}: {NUMA_NODE} is a list"
    if options.release is None:
        yield warning(
            f"{text}, which the scheduler matches from Kubernetes 1.37 on: GPUs are named"
        )
    elif options.release < MATCHES_LISTS:
        yield warning(f"{text}, which the scheduler of this cluster does not match: GPUs are named")
    elif shape.offered.has_wide_lists:
        yield hint(f"{text} of several: GPUs are named by PCI address")


def _set_remarks(shape: Shape, specs: Specs, options: ClaimOptions) -> Iterator[Remark]:
    """Yield remarks on sets, which our driver publishes only on some clusters."""
    sets = shape.offered.sets
    single = [size for size in specs if size > 1 and (sets is None or size not in sets)]
    if not single:
        return
    when = "from Kubernetes 1.37 on, or with `dra-devices: sets`"
    if sets is not None:
        of = f" of {named([str(size) for size in single], ' or ')} GPUs" if sets else ""
        text = f"{shape.title}: no sets{of} are published, which {DRIVER} has {when}"
        yield hint(f"{text}: claims get the single GPUs that it marks as the best")
    elif options.form == PLAIN:
        yield hint(f"{shape.title}: {DRIVER} publishes sets {when}: elsewhere these claims wait")


def _nic_remarks(
    shape: Shape, claims: Claims, specs: Specs, options: ClaimOptions
) -> Iterator[Remark]:
    snapshot = shape.snapshot
    if not snapshot.hcas:
        yield warning(f"{shape.title}: no RDMA NIC is known there: its claims wait for ever")
        return
    if claims.has_pairs:
        slow = [str(size) for size in specs if SLOW_PAIRS <= size < claims.most]
        if slow:
            text = f"{shape.title}: a claim for {named(slow, ' or ')} pairs that cannot be met"
            yield warning(f"{text} holds the scheduler up (0.6 s at 6 pairs, 3.6 s at 8)")
        if any(NUMA_NODE in _strict(spec) for spec in specs.values()):
            text = f"{shape.title}: pairs wait for GPUs of one NUMA node where these have room"
            yield hint(f"{text}; delete the constraint on numaNode to have any")
        return
    if snapshot.data_directs:
        why = "its NICs reach GPUs by Data Direct functions, whose PCIe roots differ"
    elif snapshot.cpu is not None and snapshot.cpu.is_virtual:
        why = "the PCIe tree of a virtual machine is not that of its host"
    else:
        why = "not every GPU has a NIC below its PCIe root"
    by = _near_by(specs, NIC_REQUEST)
    where = f"near them by {' or '.join(by)}" if by else "wherever it is"
    yield hint(f"{shape.title}: {why}: each claim gets one NIC, {where}")
    driver = options.nic_driver or ""
    if NUMA_NODE not in shape.offered.nics and not by:
        yield warning(f"{shape.title}: its NICs do not have {_numa_node(driver)}: none can be near")
    elif NUMA_NODE not in shape.offered.gpus and not by:
        text = f"{shape.title}: its GPUs do not have {_numa_node(options.driver)}"
        yield warning(f"{text}: no NIC can be near")


def _cpu_remarks(
    shape: Shape, claims: Claims, specs: Specs, options: ClaimOptions
) -> Iterator[Remark]:
    offered, driver = shape.offered, options.cpu_driver or ""
    cores = offered.cores
    if cores is None:
        return
    if offered.is_known and not cores.places:
        yield warning(
            f"{shape.title}: no node publishes CPUs of {driver}: its claims wait for ever"
        )
        return
    total = sum(cores.by_node.values())
    much = [str(size) for size in specs if total and options.cpus * size > total]
    if much:
        text = f"{shape.title}: a claim for {named(much, ' or ')} GPUs asks for more CPUs"
        yield warning(f"{text} than the {total} of a node: it waits for ever")
    if cores.is_individual:
        text = f"{shape.title}: each CPU is a device, of which a claim takes {MOST_RESULTS} at most"
        most = f"claims are for {claims.most} GPUs and fewer"
        yield warning(f"{text}: {most}; `cpuDeviceMode: grouped` of {driver} has no such limit")
        slow = [str(size) for size in specs if options.cpus * size >= SLOW_CPUS]
        if slow:
            text = f"{shape.title}: a claim for {named(slow, ' or ')} GPUs that lacks CPUs"
            yield warning(f"{text} holds the scheduler up (0.8 s at 16 CPUs, 7 s at 20)")
    by = _near_by(specs, CPU_REQUEST)
    if NUMA_NODE not in offered.cpus:
        unknown = "" if offered.is_known else "perhaps "
        text = f"{shape.title}: its CPUs {unknown}do not have {_numa_node(driver)}"
        yield warning(f"{text}: they are wherever they are")
    elif NUMA_NODE not in offered.gpus:
        text = f"{shape.title}: its GPUs do not have {_numa_node(options.driver)}"
        yield warning(f"{text}: the CPUs are wherever they are")
    elif not by:
        yield hint(f"{shape.title}: the CPUs of a claim are on several NUMA nodes")


def _strict(spec: Mapping[str, Any]) -> set[str]:
    """Return the attributes in which devices must be equal in every alternative."""
    return {
        constraint["matchAttribute"]
        for constraint in spec["devices"].get("constraints", ())
        if "matchAttribute" in constraint
        and not any("/" in name for name in constraint["requests"])
    }


def _near_by(specs: Specs, request: str) -> tuple[str, ...]:
    """Return the attributes that place a device of *request* near GPUs, in words."""
    words = {"numaNode": "NUMA node", "pcieRoot": "PCIe root"}
    found = {
        words.get(constraint["matchAttribute"].rpartition("/")[2], constraint["matchAttribute"])
        for spec in specs.values()
        for constraint in spec["devices"].get("constraints", ())
        if "matchAttribute" in constraint
        and {request, f"{request}/near"} & {*constraint["requests"]}
    }
    return tuple(sorted(found))


def _numa_node(driver: str) -> str:
    since = f" ({_SINCE[driver]})" if driver in _SINCE else ""
    return f"{NUMA_NODE}{since}"
