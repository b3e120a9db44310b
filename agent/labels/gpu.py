"""GPU Feature Discovery's labels of the node and of its GPUs' architecture.

Same keys, same values, same omissions. Facts of GFD are those of its sources,
NVIDIA/k8s-device-plugin ``internal/lm``, v0.19.0; families from 13 on: v0.20.0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from agent.labels.label import LabelEntry, boolean
from agent.model.gpu import DISPLAYS, Gpu
from agent.model.snapshot import Snapshot

# Which GPUs the labels of a node describe, where it holds several models.
#
# GPU Feature Discovery lets chance pick the model, so its values flap (v0.19.0, ``internal/lm``:
# it iterates over a map). Here it is the model with the most GPUs, and of equals the first by name.

_Fact = TypeVar("_Fact")


def counted(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs to compute on, by index; a station's display adapter is none of them."""
    return tuple(gpu for gpu in snapshot.gpus if gpu.product not in DISPLAYS)


def described(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs of the model that the labels describe, whole ones before partitioned.

    Empty for a node without GPUs. GPUs of unknown model are described where there are no others.
    """
    gpus = counted(snapshot)
    counts = Counter(gpu.product for gpu in gpus)
    if not counts:
        return ()
    model = min(counts, key=lambda name: (name is None, -counts[name], name or ""))
    same = (gpu for gpu in gpus if gpu.product == model)
    return tuple(sorted(same, key=lambda gpu: gpu.is_divided))


def first_known(gpus: Iterable[Gpu], fact: Callable[[Gpu], _Fact | None]) -> _Fact | None:
    """Return *fact* of the first of *gpus* that tells it: a lost GPU may tell nothing."""
    return next((known for gpu in gpus if (known := fact(gpu)) is not None), None)


_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
"""Major compute capability → family (GFD ``resource.go``); 7 and 8 are split by the minor."""


_TURING = (7, 5)


_ADA = (8, 9)
"""First compute capability of the family that shares its major with an older one."""


_MODES = {"030000": "graphics", "030200": "compute"}
"""PCI class → GFD's word; VGA controller, 3D controller (PCI Code and ID
Assignment Specification)."""


def _of_node(fact: Callable[[Snapshot], str | None]) -> Callable[[Snapshot], str | None]:
    """Return *fact* for nodes with GPUs only: GFD labels no others."""
    return lambda snapshot: fact(snapshot) if counted(snapshot) else None


def _of_gpu(fact: Callable[[Gpu], str | None]) -> Callable[[Snapshot], str | None]:
    """Return *fact* about the model that stands for the node."""
    return lambda snapshot: first_known(described(snapshot), fact)


def _driver_part(position: int) -> Callable[[Snapshot], str | None]:
    def part(snapshot: Snapshot) -> str | None:
        parts = (snapshot.driver_version or "").split(".")
        # GFD refuses to label at all when there are not two or three parts.
        return parts[position] if len(parts) in {2, 3} and position < len(parts) else None

    return _of_node(part)


def _driver_full(snapshot: Snapshot) -> str | None:
    return snapshot.driver_version if _driver_part(0)(snapshot) else None


def _runtime_part(position: int) -> Callable[[Snapshot], str | None]:
    return _of_node(
        lambda snapshot: str(snapshot.cuda_version[position]) if snapshot.cuda_version else None,
    )


def _runtime_full(snapshot: Snapshot) -> str | None:
    return ".".join(map(str, snapshot.cuda_version)) if snapshot.cuda_version else None


def _is_mig_capable(snapshot: Snapshot) -> bool | None:
    if any(gpu.mig is not None for gpu in counted(snapshot)):
        return True
    is_unread = any(issue.subject.endswith("nvmlDeviceGetMigMode") for issue in snapshot.issues)
    return None if snapshot.driver_version is None or is_unread else False


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    # A major of 0 stands for "unknown" with GFD, which then gives none of these labels.
    known = gpu.compute_capability
    return known if known is not None and known[0] > 0 else None


def _family(gpu: Gpu) -> str | None:
    capability = _capability(gpu)
    if capability is None:
        return None
    if capability[0] == _TURING[0]:
        return "turing" if capability >= _TURING else "volta"
    if capability[0] == _ADA[0]:
        return "ada-lovelace" if capability >= _ADA else "ampere"
    return _FAMILIES.get(capability[0], "undefined")


def _compute(position: int) -> Callable[[Snapshot], str | None]:
    def part(gpu: Gpu) -> str | None:
        capability = _capability(gpu)
        return None if capability is None else str(capability[position])

    return _of_gpu(part)


def _mode(snapshot: Snapshot) -> str:
    modes = {_MODES.get(pci_class or "") for pci_class in _classes(snapshot)}
    return modes.pop() or "unknown" if len(modes) == 1 else "unknown"


def _classes(snapshot: Snapshot) -> Iterator[str | None]:
    """Yield the PCI class of each GPU, and none of one that was lost before it told any."""
    for gpu in counted(snapshot):
        if gpu.function is not None or not gpu.is_lost:
            yield None if gpu.function is None else gpu.function.pci_class


_NVML_DRIVER = "nvmlSystemGetDriverVersion"


_NVML_CUDA = "nvmlSystemGetCudaDriverVersion_v2"


_NVML_COMPUTE = "nvmlDeviceGetCudaComputeCapability"


_PER_DRIVER = "one per driver version"


_PER_MODEL = "one per GPU model"


_FEW = "a handful"


def _driver(suffix: str, meaning: str, value: Callable[[Snapshot], str | None]) -> LabelEntry:
    return LabelEntry(
        key=f"nvidia.com/{suffix}",
        meaning=meaning,
        source=_NVML_DRIVER,
        cardinality=_PER_DRIVER,
        value=value,
    )


def _runtime(suffix: str, meaning: str, value: Callable[[Snapshot], str | None]) -> LabelEntry:
    return LabelEntry(
        key=f"nvidia.com/{suffix}",
        meaning=meaning,
        source=_NVML_CUDA,
        cardinality=_PER_DRIVER,
        value=value,
    )


ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="nvidia.com/gpu.machine",
        meaning="Machine type by its firmware; `unknown` where it names none.",
        source="DMI `product_name`",
        cardinality="one per machine type",
        value=_of_node(lambda snapshot: snapshot.product_name or "unknown"),
    ),
    _driver("cuda.driver-version.major", "Driver version, first part.", _driver_part(0)),
    _driver("cuda.driver-version.minor", "Driver version, second part.", _driver_part(1)),
    _driver(
        "cuda.driver-version.revision",
        "Driver version, third part; absent where it has two.",
        _driver_part(2),
    ),
    _driver("cuda.driver-version.full", "Driver version.", _of_node(_driver_full)),
    _driver("cuda.driver.major", "Older name of `cuda.driver-version.major`.", _driver_part(0)),
    _driver("cuda.driver.minor", "Older name of `cuda.driver-version.minor`.", _driver_part(1)),
    _driver("cuda.driver.rev", "Older name of `cuda.driver-version.revision`.", _driver_part(2)),
    _runtime("cuda.runtime-version.major", "CUDA the driver supports, major.", _runtime_part(0)),
    _runtime("cuda.runtime-version.minor", "CUDA the driver supports, minor.", _runtime_part(1)),
    _runtime("cuda.runtime-version.full", "CUDA the driver supports.", _of_node(_runtime_full)),
    _runtime("cuda.runtime.major", "Older name of `cuda.runtime-version.major`.", _runtime_part(0)),
    _runtime("cuda.runtime.minor", "Older name of `cuda.runtime-version.minor`.", _runtime_part(1)),
    LabelEntry(
        key="nvidia.com/mig.capable",
        meaning="Whether any GPU can be partitioned (MIG).",
        source="nvmlDeviceGetMigMode, supported or not",
        cardinality="2",
        value=_of_node(lambda snapshot: boolean(_is_mig_capable(snapshot))),
    ),
    LabelEntry(
        key="nvidia.com/mps.capable",
        meaning="Whether GPUs are shared through MPS: never, so far.",
        source="fixed",
        cardinality="1",
        value=_of_node(lambda _: "false"),
    ),
    LabelEntry(
        key="nvidia.com/gpu.family",
        meaning="Architecture of that model; `undefined` where newer than this program.",
        source=_NVML_COMPUTE,
        cardinality=_FEW,
        value=_of_gpu(_family),
    ),
    LabelEntry(
        key="nvidia.com/gpu.compute.major",
        meaning="CUDA compute capability of that model, major.",
        source=_NVML_COMPUTE,
        cardinality=_FEW,
        value=_compute(0),
    ),
    LabelEntry(
        key="nvidia.com/gpu.compute.minor",
        meaning="CUDA compute capability of that model, minor.",
        source=_NVML_COMPUTE,
        cardinality=_FEW,
        value=_compute(1),
    ),
    LabelEntry(
        key="nvidia.com/gpu.mode",
        meaning="`compute` (3D controllers), `graphics` (VGA) or, where they differ, `unknown`.",
        source="PCI class in sysfs",
        cardinality="3",
        value=_of_node(_mode),
    ),
)
