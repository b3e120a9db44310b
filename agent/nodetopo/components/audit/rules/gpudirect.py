"""Rules on the requirements of RDMA to and from GPU memory."""

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from nodetopo.checks.inputs import (
    adapters,
    because,
    confidential,
    missing_gpus,
    missing_hcas,
    no_adapters,
    no_gpus,
    unknown_of,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.pcie_paths import is_translated
from nodetopo.components.audit.rules.rdma_ports import is_efa
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import cluster_uuid

FIRST_KERNEL = (5, 12)
"""Linux release since which RDMA drivers take dma-buf (NVIDIA GPUDirect RDMA documentation)."""

FIRST_CUDA = (11, 7)
"""CUDA release since which the driver gives it (the same)."""

FIRST_CAPABILITY = (7, 5)
"""Compute capability of Turing, the first architecture of the open kernel module."""

SOURCE = "/proc/driver/nvidia/params"

_OVERRIDES = ("RegistryDwords", "RegistryDwordsPerDevice")
_OVERRIDE = re.compile(r"([A-Za-z0-9_]{1,128}) *= *([A-Za-z0-9_]{1,128})")
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


class Harm(Struct, frozen=True, kw_only=True):
    """A parameter, without ``NVreg_``, with harmful values.

    Attributes:
        hurts: whether a value is harmful; values are in procfs format.
        expected: the harmless value.
        applies: whether it can harm this node.
    """

    name: str
    hurts: Callable[[str], bool]
    expected: str
    applies: Callable[[Snapshot], bool] = lambda _: True


def _is_on(value: str) -> bool:
    return value not in ("0", "0x0", "")


def _is_off(value: str) -> bool:
    return value in ("0", "0x0")


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
    Harm(
        name="ImexChannelCount",
        hurts=_is_off,
        expected="2048",
        applies=lambda node: any(map(cluster_uuid, node.gpus)),
    ),
)
"""NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-reg.h, where each is described: NVLink
switched off, or with less of its bandwidth to save power; interrupts by wire; addresses of peers
that an IOMMU does not know; no channel for memory shared across nodes."""


@rule("GDR-001", Severity.ERROR)
def peer_memory(snapshot: Snapshot) -> Judgement:
    """Find that nvidia_peermem is not loaded, and that something stands in the way of dma-buf."""
    hcas = adapters(snapshot)
    reason = no_gpus(snapshot) or no_adapters(snapshot)
    if reason is None and hcas and all(map(is_efa, hcas)):
        reason = "EFA, whose driver has its own mechanism"
    if reason := reason or confidential(snapshot):
        yield Skip(reason)
        return

    # Known obstacles to dma-buf, and unknown inputs.
    obstacles: list[str] = []
    unknown: list[Missing] = []
    release = _RELEASE.match((snapshot.kernel.release if snapshot.kernel else None) or "")
    if release is None:
        unknown.append(Missing("kernel release", because(snapshot, "kernel")))
    elif (int(release[1]), int(release[2])) < FIRST_KERNEL:
        obstacles.append(f"kernel {int(release[1])}.{int(release[2])} is older than 5.12")
    is_open = None if snapshot.nvidia is None else snapshot.nvidia.is_open
    if is_open is None:
        unknown.append(Missing("kind of kernel module", because(snapshot, "nvidia-driver")))
    elif not is_open:
        obstacles.append("the kernel module is the closed one")
    if snapshot.cuda_version is None:
        unknown.append(Missing("CUDA version", because(snapshot, "nvml")))
    elif snapshot.cuda_version < FIRST_CUDA:
        obstacles.append("the driver is older than CUDA 11.7")
    capabilities = {gpu.name: gpu.compute_capability for gpu in snapshot.gpus}
    if any(each and each < FIRST_CAPABILITY for each in capabilities.values()):
        obstacles.append("a GPU is older than Turing")
    silent = (name for name, capability in capabilities.items() if capability is None)
    unknown += unknown_of("compute capability", silent)

    is_loaded = None if snapshot.nvidia is None else snapshot.nvidia.peer_memory
    if is_loaded is False and obstacles:
        yield Finding(
            subject="NVIDIA driver",
            observed=f"no nvidia_peermem, and no dma-buf: {', '.join(obstacles)}",
            expected="one of the two",
        )
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    if is_loaded is None and obstacles:
        yield Missing("whether nvidia_peermem is loaded", because(snapshot, "nvidia-driver"))
    if not is_loaded and not obstacles:
        yield from unknown


@rule("GDR-002", Severity.WARNING, unless=no_gpus)
def driver_parameters(snapshot: Snapshot) -> Judgement:
    """Find harmful parameters of NVIDIA's kernel module, also in its two lists of overrides."""
    parameters = None if snapshot.nvidia is None else snapshot.nvidia.parameters
    for harm in HARMS:
        for value in _values(parameters or {}, harm.name) if harm.applies(snapshot) else ():
            if harm.hurts(value):
                yield Finding(
                    subject=f"NVreg_{harm.name} in {SOURCE}",
                    observed=value,
                    expected=harm.expected,
                )
    yield from missing_gpus(snapshot)
    if parameters is None:
        yield Missing("driver parameters", because(snapshot, "nvidia-driver"))


@rule("GDR-003", Severity.INFO, unless=(no_gpus, no_adapters))
def gdrcopy(snapshot: Snapshot) -> Judgement:
    """Find that gdrdrv is not loaded."""
    is_loaded = None if snapshot.host is None else snapshot.host.gdrcopy
    if is_loaded is False:
        yield Finding(subject="gdrdrv", observed="not loaded, or no /dev/gdrdrv", expected="loaded")
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    if is_loaded is None:
        yield Missing("whether gdrdrv is loaded", because(snapshot, "host"))


def _values(parameters: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the values that the parameter and its two lists of overrides give it, once each."""
    values = [parameters[name]] if name in parameters else []
    for source in _OVERRIDES:
        overrides = _OVERRIDE.findall(parameters.get(source, ""))
        values += [value for key, value in overrides if key == name]
    return tuple(dict.fromkeys(values))
