"""A remark on GPUs whose nearest HCA is behind another host bridge."""

from agent.checks.inputs import (
    Inputs,
    first_of,
    gpu_label,
    missing_gpus,
    missing_hcas,
    missing_machine,
    no_adapters,
    no_gpus,
    unknown_of,
    virtual_machine,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.nvlink import Closeness
from agent.model.snapshot import Snapshot
from agent.topology.affinity import nearest_hcas


def _far(snapshot: Snapshot) -> tuple[Finding, ...]:
    nearest = nearest_hcas(snapshot)
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"nearest is {found.hcas[0].name}, {found.closeness.name}",
            expected=f"an HCA at {_near(gpu).name} or nearer",
        )
        for gpu in snapshot.gpus
        if (found := nearest.get(gpu.index)) and found.closeness > _near(gpu)
    )


def _near(gpu: Gpu) -> Closeness:
    """Return how far an HCA may be for NCCL to reach the GPU's memory from it.

    On Grace all of a CPU's are near: data goes on by NVLink-C2C, no way between host bridges
    (NCCL 2.27 docs, NCCL_NET_GDR_C2C).
    """
    return Closeness.NODE if gpu.c2c and gpu.c2c.is_enabled else Closeness.PHB


def _missing(snapshot: Snapshot) -> Inputs:
    nearest = nearest_hcas(snapshot) if snapshot.hcas else {}
    silent = (gpu.name for gpu in snapshot.gpus if gpu.index not in nearest)
    return (
        *missing_gpus(snapshot),
        *missing_hcas(snapshot),
        *missing_machine(snapshot),
        *unknown_of("distance to the HCAs", silent if snapshot.hcas else ()),
    )


RULE = Rule(
    code="RDM-005",
    claim="every GPU has an HCA behind its own host bridge",
    why="Data between an HCA and a GPU behind different host bridges crosses the CPU's own fabric, "
    "and NCCL then leaves GPU memory out of it (NCCL_NET_GDR_LEVEL).",
    area=Area.RDMA,
    suite=Suite.HEALTH,
    severity=Severity.INFO,
    needs=_missing,
    check=_far,
    skips=first_of(no_gpus, no_adapters, virtual_machine),
    remedy="where the machine has such a slot, move an HCA there; keep jobs across nodes off the "
    "GPUs that have none",
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
)
