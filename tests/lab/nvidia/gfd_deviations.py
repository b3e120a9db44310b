"""All in which our labels differ from those of GFD v0.19.0 on purpose, each with its reason.

The lab holds both against each other on :data:`~tests.lab.nvidia.gfd_cases.CASES`: what is not
written here does not occur, and what is written does.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

TIMESTAMP = "nvidia.com/gfd.timestamp"
"""On every node, and none of ours: a label that changes at each start wakes every scheduler."""

OURS_ALONE = frozenset({"nvidia.com/nvlink.version", "nvidia.com/nvswitch.present"})
"""In NVIDIA's domain without being GFD's: names that this project was asked to publish."""


class Deviation(Struct, frozen=True, kw_only=True):
    """One label that differs on the machine of *case*; ``None`` is no label."""

    case: str
    key: str
    gfd: str | None
    ours: str | None
    reason: str


class Silence(Struct, frozen=True, kw_only=True):
    """A machine for which GFD ends with an error, and nobody writes a label.

    Attributes:
        ours: what we say otherwise than on the same machine in order; ``None`` is no label.
    """

    case: str
    ours: Mapping[str, str | None]
    reason: str


class Flapping(Struct, frozen=True, kw_only=True):
    """A label whose value GFD draws by lot, out of *gfd*, each time it runs."""

    case: str
    key: str
    gfd: frozenset[str]
    ours: str
    reason: str


_EMPTY = "a label without a value says nothing that its absence does not"
_INVALID = "the API server refuses the value: a letter or digit must end it"
_LONG = "the API server refuses the value: it takes 63 characters"
_LATER = "GFD knows the family from v0.20.0 on"
_SETTLING = (
    "the label claims all GPUs of the node for the clique; while one is still registering that is "
    "not known, and what was published stays"
)
_OUTSIDE = (
    "the label claims all GPUs of the node for the clique, and a GPU without a cluster is outside"
)
_SINGLE_NODE = "NVLink leads to other nodes from superchips alone, whatever cluster a driver names"
_BY_MODE = "NVML's mode is enough; GFD wants a capability of PCI config space, too"
_UNPRIVILEGED = "GFD takes the right to read PCI config space to say no; NVML says it to everybody"
_NO_GPUS = "a node without GPUs is told by having none of these labels"
_LOST = "one lost GPU is no reason to keep back what does not depend on it"
_STRANGE = "a version of other parts is no reason to say nothing of the GPUs"
_BY_LOT = (
    "GFD iterates over a map of models; ours is the most frequent model, then the first by name"
)

_STATION = "gb300x2-station-1grace-datadirect"
_DRIVER_KEYS = (
    "cuda.driver-version.full",
    "cuda.driver-version.major",
    "cuda.driver-version.minor",
    "cuda.driver-version.revision",
    "cuda.driver.major",
    "cuda.driver.minor",
    "cuda.driver.rev",
)

DEVIATIONS = (
    *(
        Deviation(
            case="driver of two parts", key=f"nvidia.com/{key}", gfd="", ours=None, reason=_EMPTY
        )
        for key in ("cuda.driver-version.revision", "cuda.driver.rev")
    ),
    *(
        Deviation(
            case=case, key="nvidia.com/gpu.sharing-strategy", gfd="", ours=None, reason=_EMPTY
        )
        for case in (
            "partly, single",
            "partly, single, replicas",
            "uneven, single",
            "parted, single",
        )
    ),
    Deviation(
        case="name of nobody",
        key="nvidia.com/gpu.machine",
        gfd="To-be-filled-by-O.E.M.",
        ours="To-be-filled-by-O.E.M",
        reason=_INVALID,
    ),
    Deviation(
        case="long name",
        key="nvidia.com/gpu.machine",
        gfd="-".join(["ProLiant"] * 8),
        ours="-".join(["ProLiant"] * 7),
        reason=_LONG,
    ),
    Deviation(
        case="newer than GFD",
        key="nvidia.com/gpu.family",
        gfd="undefined",
        ours="rubin",
        reason=_LATER,
    ),
    Deviation(
        case="fabric in progress",
        key="nvidia.com/gpu.clique",
        gfd="6b0e1b2c-0000-4000-8000-000000000072.2",
        ours=None,
        reason=_SETTLING,
    ),
    Deviation(
        case="zeros beside a cluster",
        key="nvidia.com/gpu.clique",
        gfd="6b0e1b2c-0000-4000-8000-000000000072.2",
        ours=None,
        reason=_OUTSIDE,
    ),
    Deviation(
        case="board with a cluster",
        key="nvidia.com/gpu.clique",
        gfd="6b0e1b2c-0000-4000-8000-000000000072.1",
        ours=None,
        reason=_SINGLE_NODE,
    ),
    Deviation(
        case="vGPU by its mode",
        key="nvidia.com/vgpu.present",
        gfd="false",
        ours="true",
        reason=_BY_MODE,
    ),
    Deviation(
        case="unprivileged",
        key="nvidia.com/vgpu.present",
        gfd=None,
        ours="false",
        reason=_UNPRIVILEGED,
    ),
    Deviation(
        case="no GPU", key="nvidia.com/vgpu.present", gfd="false", ours=None, reason=_NO_GPUS
    ),
)

SILENCES: Mapping[str, Silence] = MappingProxyType(
    {
        silence.case: silence
        for silence in (
            Silence(
                case="lost",
                ours={
                    f"nvidia.com/{key}": None for key in ("gpu.count", "gpu.mode", "vgpu.present")
                },
                reason=_LOST,
            ),
            Silence(
                case="driver of four parts",
                ours={f"nvidia.com/{key}": None for key in _DRIVER_KEYS},
                reason=_STRANGE,
            ),
        )
    }
)
"""By case."""

FLAPPINGS = tuple(
    Flapping(
        case=_STATION,
        key=f"nvidia.com/gpu.{name}",
        gfd=frozenset({ours, other}),
        ours=ours,
        reason=_BY_LOT,
    )
    for name, ours, other in (
        ("product", "NVIDIA-GB300", "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"),
        ("memory", "258048", "97887"),
        ("compute.major", "10", "12"),
        ("compute.minor", "3", "0"),
    )
)
