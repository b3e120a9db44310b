"""Rules on what RDMA to and from GPU memory needs."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agent.checks.inputs import (
    Inputs,
    adapters,
    because,
    confidential,
    first_of,
    missing_gpus,
    missing_hcas,
    no_adapters,
    no_gpus,
    unknown_of,
)
from agent.checks.pcie_paths import is_translated
from agent.checks.rdma_ports import is_efa
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot

# A rule on parameters of NVIDIA's kernel module that cost bandwidth.

SOURCE = "/proc/driver/nvidia/params"


_OVERRIDES = ("RegistryDwords", "RegistryDwordsPerDevice")


_OVERRIDE = re.compile(r"([A-Za-z0-9_]{1,128}) *= *([A-Za-z0-9_]{1,128})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """A parameter, without ``NVreg_``, that costs something with some values.

    Attributes:
        hurts: whether a value costs something; values are as procfs prints them.
        expected: the value that does not.
        applies: whether this node is one that it can hurt.
    """

    name: str
    hurts: Callable[[str], bool]
    expected: str
    applies: Callable[[Snapshot], bool] = lambda _: True


def _is_on(value: str) -> bool:
    return value not in ("0", "0x0", "")


def _is_off(value: str) -> bool:
    return value in ("0", "0x0")


def _joins_nodes(snapshot: Snapshot) -> bool:
    return any(gpu.fabric and gpu.fabric.cluster_uuid for gpu in snapshot.gpus)


HARMS: tuple[Harm, ...] = (
    Harm(name="NvLinkDisable", hurts=_is_on, expected="0"),
    Harm(
        name="RmNvlinkBandwidth",
        hurts=lambda value: value not in ("", "FULL"),
        expected="FULL",
    ),
    Harm(name="RmNvlinkBandwidthLinkCount", hurts=_is_on, expected="0"),
    Harm(name="EnableMSI", hurts=_is_off, expected="1"),
    Harm(name="DmaRemapPeerMmio", hurts=_is_off, expected="1", applies=is_translated),
    Harm(name="ImexChannelCount", hurts=_is_off, expected="2048", applies=_joins_nodes),
)
"""NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-reg.h, where each is described: NVLink
switched off, or with less of its bandwidth to save power; interrupts by wire; addresses of peers
that an IOMMU does not know; no channel for memory shared across nodes."""


def _harmful(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"NVreg_{harm.name} in {SOURCE}",
            observed=value,
            expected=harm.expected,
        )
        for harm in HARMS
        if harm.applies(snapshot)
        for value in dict.fromkeys(_values(_parameters(snapshot), harm.name))
        if harm.hurts(value)
    )


def _parameters(snapshot: Snapshot) -> Mapping[str, str]:
    return (snapshot.nvidia.parameters if snapshot.nvidia else None) or {}


def _values(parameters: Mapping[str, str], name: str) -> Iterator[str]:
    """Yield the parameter's value, and those that its two lists of overrides give it."""
    if name in parameters:
        yield parameters[name]
    for source in _OVERRIDES:
        for key, value in _OVERRIDE.findall(parameters.get(source, "")):
            if key == name:
                yield value


def _parameters_missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.nvidia is not None and snapshot.nvidia.parameters is not None
    absent = () if is_known else (f"driver parameters{because(snapshot, 'nvidia-driver')}",)
    return missing_gpus(snapshot) + absent


PARAMETERS_RULES: tuple[Rule, ...] = (
    Rule(
        code="GDR-002",
        claim="no parameter of the NVIDIA driver takes bandwidth away",
        why="Such parameters are set to save power or to work around a fault, and forgotten; "
        "nothing else shows why NVLink is slow or gone.",
        area=Area.GPUDIRECT,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_parameters_missing,
        check=_harmful,
        skips=no_gpus,
        remedy="remove the option from /etc/modprobe.d and from the kernel's command line, then "
        "load the driver anew or reboot",
        reference="https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/"
        "kernel-open/nvidia/nv-reg.h",
    ),
)


FIRST_KERNEL = (5, 12)
"""Linux release since which RDMA drivers take dma-buf (NVIDIA GPUDirect RDMA documentation)."""


FIRST_CUDA = (11, 7)
"""CUDA release since which the driver gives it (the same)."""


FIRST_CAPABILITY = (7, 5)
"""Compute capability of Turing, the first architecture of the open kernel module."""


_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


_REFERENCE = "https://docs.nvidia.com/cuda/gpudirect-rdma/"


def _peer_memory(snapshot: Snapshot) -> bool | None:
    return None if snapshot.nvidia is None else snapshot.nvidia.peer_memory


def _obstacles(snapshot: Snapshot) -> Iterator[str]:
    """Yield what is known to stand in the way of dma-buf."""
    release = _release(snapshot)
    if release is not None and release < FIRST_KERNEL:
        yield f"kernel {release[0]}.{release[1]} is older than 5.12"
    if snapshot.nvidia is not None and snapshot.nvidia.is_open is False:
        yield "the kernel module is the closed one"
    if snapshot.cuda_version is not None and snapshot.cuda_version < FIRST_CUDA:
        yield "the driver is older than CUDA 11.7"
    if any(
        it.compute_capability and it.compute_capability < FIRST_CAPABILITY for it in snapshot.gpus
    ):
        yield "a GPU is older than Turing"


def _unknowns(snapshot: Snapshot) -> Iterator[str]:
    """Yield what dma-buf depends on and is not known."""
    if _release(snapshot) is None:
        yield f"kernel release{because(snapshot, 'kernel')}"
    if snapshot.nvidia is None or snapshot.nvidia.is_open is None:
        yield f"kind of kernel module{because(snapshot, 'nvidia-driver')}"
    if snapshot.cuda_version is None:
        yield f"CUDA version{because(snapshot, 'nvml')}"
    yield from unknown_of(
        "compute capability", (it.name for it in snapshot.gpus if it.compute_capability is None)
    )


def _release(snapshot: Snapshot) -> tuple[int, int] | None:
    release = None if snapshot.kernel is None else snapshot.kernel.release
    match = _RELEASE.match(release or "")
    return (int(match[1]), int(match[2])) if match else None


def _without_a_way(snapshot: Snapshot) -> tuple[Finding, ...]:
    obstacles = tuple(_obstacles(snapshot))
    if _peer_memory(snapshot) is not False or not obstacles:
        return ()
    return (
        Finding(
            subject="NVIDIA driver",
            observed=f"no nvidia_peermem, and no dma-buf: {', '.join(obstacles)}",
            expected="one of the two",
        ),
    )


def _missing(snapshot: Snapshot) -> Inputs:
    absent = missing_gpus(snapshot) + missing_hcas(snapshot)
    if _peer_memory(snapshot):
        return absent
    is_barred = any(_obstacles(snapshot))
    if _peer_memory(snapshot) is None and is_barred:
        return (*absent, f"whether nvidia_peermem is loaded{because(snapshot, 'nvidia-driver')}")
    return absent if is_barred else (*absent, *_unknowns(snapshot))


def _no_peer_clients(snapshot: Snapshot) -> str | None:
    found = adapters(snapshot)
    is_own = bool(found) and all(map(is_efa, found))
    return "EFA, whose driver has a way of its own" if is_own else None


def _without_copies(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.host is None or snapshot.host.gdrcopy is not False:
        return ()
    return (Finding(subject="gdrdrv", observed="not loaded, or no /dev/gdrdrv", expected="loaded"),)


def _missing_module(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.host is not None and snapshot.host.gdrcopy is not None
    module = () if is_known else (f"whether gdrdrv is loaded{because(snapshot, 'host')}",)
    return missing_gpus(snapshot) + missing_hcas(snapshot) + module


RULES: tuple[Rule, ...] = (
    Rule(
        code="GDR-001",
        claim="HCAs can reach GPU memory, through nvidia_peermem or dma-buf",
        why="Without either, data between nodes goes through host memory: a fraction of the "
        "bandwidth, and load on the CPU.",
        area=Area.GPUDIRECT,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing,
        check=_without_a_way,
        skips=first_of(no_gpus, no_adapters, _no_peer_clients, confidential),
        remedy="install NVIDIA's open kernel module on Linux 5.12 or later, which has dma-buf; or "
        "`modprobe nvidia_peermem` with DOCA-OFED's RDMA drivers",
        reference=_REFERENCE,
    ),
    *PARAMETERS_RULES,
    Rule(
        code="GDR-003",
        claim="GDRCopy's module is loaded",
        why="UCX, NVSHMEM and libraries on it copy small messages to GPU memory through it; NCCL "
        "does not need it.",
        area=Area.GPUDIRECT,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_module,
        check=_without_copies,
        skips=first_of(no_gpus, no_adapters),
        remedy="where jobs use UCX or NVSHMEM, install GDRCopy and load gdrdrv; the GPU Operator "
        "does so with gdrcopy.enabled=true",
        reference="https://github.com/NVIDIA/gdrcopy",
    ),
)
