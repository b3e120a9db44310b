"""Conversions from NVML's answers to the values of the model.

Every conversion raises ``ValueError`` for an unknown value, so that a newer driver's new value
becomes one unknown field with an issue, never a wrong value. Structures are read by attribute and
need not come from pynvml. Numbers follow nvml.h.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from nodetopo.model.gpu import (
    ConfidentialCompute,
    Fabric,
    FabricState,
    MigAttributes,
    MigPlacement,
    RemappedRows,
    Virtualization,
)
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import Closeness, P2pStatus, PeerKind
from nodetopo.model.pci import PciAddress

ARCHITECTURES: Mapping[int, str] = MappingProxyType(
    {
        2: "kepler",
        3: "maxwell",
        4: "pascal",
        5: "volta",
        6: "turing",
        7: "ampere",
        8: "ada-lovelace",
        9: "hopper",
        10: "blackwell",
        13: "rubin",
    },
)
"""``NVML_DEVICE_ARCH_*``; 11, 12 and 15 are accelerators without a GPU."""

NVLINK_GENERATION: Mapping[str, int] = MappingProxyType(
    {"pascal": 1, "volta": 2, "turing": 2, "ampere": 3, "hopper": 4, "blackwell": 5, "rubin": 6},
)
"""The only NVLink generation of each architecture (NVIDIA's NVLink page). It overrides the driver's
report for a link: H100 was seen to report 5.0, and public benchmarks work around it.
"""

MOST_NVLINKS: Mapping[str, int] = MappingProxyType(
    {
        "kepler": 0,
        "maxwell": 0,
        "pascal": 4,
        "volta": 6,
        "turing": 2,
        "ampere": 12,
        "ada-lovelace": 0,
        "hopper": 18,
        "blackwell": 18,
    },
)
"""The most NVLinks of any GPU of each architecture: NVIDIA's NVLink page; NCCL reads as many
(src/graph/xml.cc); the white papers of Turing (TU102) and of Ada Lovelace, which has none. Later
architectures are not listed, so that nothing of them is overlooked."""

_NVLINK_GENERATIONS = (None, 1, 2, 2, 3, 3, 4, 5, 6)
_FABRIC_STATES = tuple(FabricState)  # NVML_GPU_FABRIC_STATE_* counts 0…3 in this order
_PEER_KINDS = {0: PeerKind.GPU, 1: PeerKind.CPU, 2: PeerKind.SWITCH}  # IBMNPU is a POWER9 CPU
_PEER_UNKNOWN = 255  # NVML_NVLINK_DEVICE_TYPE_UNKNOWN
_P2P_STATUSES = tuple(P2pStatus)  # nvmlGpuP2PStatus_t counts 0…5 in this order
_P2P_UNKNOWN = 6
_VIRTUALIZATIONS = tuple(Virtualization)  # nvmlGpuVirtualizationMode_t counts 0…4 in this order
_HIDDEN_PEER = "ffffffff:ff:ff."

FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Where an ``nvmlFieldValue_t`` keeps its number, by ``nvmlValueType_t``."""

_MIG_PROFILE = re.compile(r" MIG (\S+)$")
_SMALL = 1 << 16  # no index, width, generation or instance number comes near
_MAX_FIELD = 1 << 31  # the fields we read are speeds in MB/s and small enumerations
_MAX_MEMORY_MIB = 1 << 26  # 64 TiB
_MAX_COUNT = 1 << 48  # ECC counters are 64 bits wide; no GPU lives to count so far
_NO_NODE = (-1, 0xFFFFFFFF)  # NUMA_NO_NODE, read as a signed or an unsigned number


def small(number: int) -> int:
    """Return *number*, unless no device could have so high an index, width or version."""
    if not 0 <= number < _SMALL:
        raise ValueError(f"implausible number {number}")
    return number


def positive(number: int) -> int | None:
    """Return *number*; ``None`` for the 0 that a driver gives where it does not know."""
    return small(number) or None


def count(number: int) -> int:
    """Return *number*, a counter of events, unless it cannot be one."""
    if not 0 <= number < _MAX_COUNT:
        raise ValueError(f"implausible count {number}")
    return number


def board(number: int) -> int:
    """Return a board's id; NVML derives it from a bridge's PCI address, above 16 bits too."""
    if not 0 <= number < _MAX_FIELD:
        raise ValueError(f"implausible number {number}")
    return number


def text(answer: str) -> str | None:
    """Return a name or serial number without the blanks around it; ``None`` if empty."""
    return answer.strip() or None


def nvlink_generation(number: int) -> int | None:
    """Read an ``nvmlNvlinkVersion_t``, which counts 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0.

    The generation is the major version; ``None`` for the 0 of a driver that does not know.
    """
    if number >= len(_NVLINK_GENERATIONS) or number < 0:
        raise ValueError(f"unknown NVLink version {number}")
    return _NVLINK_GENERATIONS[number]


def flag(number: int) -> bool:
    """Read ``nvmlEnableState_t`` and its like: 0 or 1."""
    if number not in (0, 1):
        raise ValueError(f"neither 0 nor 1: {number}")
    return bool(number)


def flags(numbers: Iterable[int]) -> tuple[bool, ...]:
    """Read several :func:`flag` values."""
    return tuple(map(flag, numbers))


def architecture(number: int) -> str:
    """Return NVIDIA's name of an ``nvmlDeviceArchitecture_t`` in lower case."""
    if number not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {number}")
    return ARCHITECTURES[number]


def cuda_version(number: int) -> tuple[int, int]:
    """Split 12040 into (12, 4): 1000 × major + 10 × minor (cuda.h ``CUDA_VERSION``)."""
    return small(number) // 1000, number % 1000 // 10


def capability(version: tuple[int, int]) -> tuple[int, int]:
    """Return a compute capability, (major, minor)."""
    return small(version[0]), small(version[1])


def memory_mib(memory: Any) -> int:
    """Return the whole memory of an ``nvmlMemory_t`` in MiB, rounded down."""
    return _mib(int(memory.total) >> 20)


def _mib(number: int) -> int:
    if not 0 <= number <= _MAX_MEMORY_MIB:
        raise ValueError(f"implausible memory of {number} MiB")
    return number


def cpu_set(words: Iterable[int]) -> CpuSet | None:
    """Read a CPU mask, 64 CPUs a word, lowest first; ``None`` for an empty mask."""
    cpus = _bits(words)
    return CpuSet.of(cpus) if cpus else None


def node_set(words: Iterable[int]) -> tuple[int, ...] | None:
    """Read a mask of NUMA nodes, 64 nodes a word, lowest first; ``None`` for none."""
    return tuple(_bits(words)) or None


def _bits(words: Iterable[int]) -> list[int]:
    return [
        position * 64 + bit
        for position, word in enumerate(words)
        if word
        for bit in range(64)
        if word >> bit & 1
    ]


def numa_node(number: int) -> int | None:
    """Read the id of a NUMA node; ``None`` for the kernel's "no node"."""
    return None if number in _NO_NODE else small(number)


def virtualization(number: int) -> Virtualization:
    """Read ``nvmlGpuVirtualizationMode_t``."""
    if not 0 <= number < len(_VIRTUALIZATIONS):
        raise ValueError(f"unknown virtualization mode {number}")
    return _VIRTUALIZATIONS[number]


def confidential_compute(state: Any) -> ConfidentialCompute:
    """Read an ``nvmlConfComputeSystemState_t``."""
    return ConfidentialCompute(
        is_enabled=flag(state.ccFeature),
        is_dev_tools=flag(state.devToolsMode),
    )


def pci_address(info: Any) -> PciAddress:
    """Read the address in an ``nvmlPciInfo_t``."""
    return PciAddress.parse(info.busId)


def peer_address(info: Any) -> PciAddress | None:
    """Read a link's far end; ``None`` for the sentinel that drivers give for hidden switches."""
    if info.busId.lower().startswith(_HIDDEN_PEER):
        return None
    return pci_address(info)


def peer_kind(number: int) -> PeerKind | None:
    """Read ``nvmlIntNvLinkDeviceType_t``; ``None`` where NVML itself does not know."""
    if number == _PEER_UNKNOWN:
        return None
    if number not in _PEER_KINDS:
        raise ValueError(f"unknown NVLink device type {number}")
    return _PEER_KINDS[number]


def closeness(level: int) -> Closeness:
    """Read ``nvmlGpuTopologyLevel_t``."""
    return Closeness(level)


def p2p_status(number: int) -> P2pStatus | None:
    """Read ``nvmlGpuP2PStatus_t``; ``None`` where NVML itself does not know."""
    if number == _P2P_UNKNOWN:
        return None
    if not 0 <= number < len(_P2P_STATUSES):
        raise ValueError(f"unknown P2P status {number}")
    return _P2P_STATUSES[number]


def remapped_rows(counts: tuple[int, int, int, int]) -> RemappedRows:
    """Read the four values of ``nvmlDeviceGetRemappedRows``."""
    correctable, uncorrectable, pending, failed = counts
    return RemappedRows(
        correctable=small(correctable),
        uncorrectable=small(uncorrectable),
        is_pending=flag(pending),
        has_failed=flag(failed),
    )


def sram_threshold(status: Any) -> bool:
    """Read whether an ``nvmlEccSramErrorStatus_v1_t`` is over the field diagnostic's threshold."""
    return flag(status.bThresholdExceeded)


def fabric(info: Any) -> Fabric:
    """Read an ``nvmlGpuFabricInfo_t`` or ``nvmlGpuFabricInfoV_t``; the first has no health."""
    if not 0 <= info.state < len(_FABRIC_STATES):
        raise ValueError(f"unknown fabric state {info.state}")
    return Fabric(
        state=_FABRIC_STATES[info.state],
        status=info.status,
        cluster_uuid=cluster_uuid(info) if any(info.clusterUuid) else None,
        clique_id=info.cliqueId,
        health_mask=getattr(info, "healthMask", None),
    )


def cluster_uuid(info: Any) -> str:
    """Return the cluster of an ``nvmlGpuFabricInfo_t`` as UUIDs are written, also one of zeros."""
    digits = bytes(info.clusterUuid).hex()
    return "-".join(digits[a:b] for a, b in pairwise((0, 8, 12, 16, 20, 32)))


def field_value(field: Any) -> int:
    """Return the number in an ``nvmlFieldValue_t``, by its ``nvmlValueType_t``."""
    if not 0 <= field.valueType < len(FIELD_MEMBERS):
        raise ValueError(f"unknown value type {field.valueType}")
    number = int(getattr(field.value, FIELD_MEMBERS[field.valueType]))
    if not 0 <= number < _MAX_FIELD:
        raise ValueError(f"implausible number {number}")
    return number


def mig_attributes(attributes: Any) -> MigAttributes:
    """Read an ``nvmlDeviceAttributes_t``, whose memory is in MiB."""
    return MigAttributes(
        multiprocessors=small(attributes.multiprocessorCount),
        copy_engines=small(attributes.sharedCopyEngineCount),
        decoders=small(attributes.sharedDecoderCount),
        encoders=small(attributes.sharedEncoderCount),
        jpeg_engines=small(attributes.sharedJpegCount),
        ofa_engines=small(attributes.sharedOfaCount),
        gpu_instance_slices=small(attributes.gpuInstanceSliceCount),
        compute_instance_slices=small(attributes.computeInstanceSliceCount),
        memory_mib=_mib(attributes.memorySizeMB),
    )


def mig_place(info: Any) -> tuple[int, MigPlacement]:
    """Read the profile's number and the placement in an ``nvmlGpuInstanceInfo_t``."""
    place = info.placement
    return small(info.profileId), MigPlacement(start=small(place.start), size=small(place.size))


def mig_profile(name: str) -> str | None:
    """Return the profile in a MIG device's name, ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``."""
    match = _MIG_PROFILE.search(name)
    return match[1] if match else None
