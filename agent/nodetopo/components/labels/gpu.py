"""GPU Feature Discovery's labels of the node and of its GPUs' architecture.

Same keys, same values, same omissions. Source of GFD's behaviour: NVIDIA/k8s-device-plugin
``internal/lm``, v0.19.0; families from 13 on: v0.20.0.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from nodetopo.components.labels.label import Label, RawValue
from nodetopo.model.gpu import DISPLAYS, Gpu
from nodetopo.model.snapshot import Snapshot

_Fact = TypeVar("_Fact")
_Value = Callable[[Snapshot], RawValue]

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


def counted(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs to compute on, by index, without a station's display adapter."""
    return tuple(gpu for gpu in snapshot.gpus if gpu.product not in DISPLAYS)


def described(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs of the model that the labels describe, whole ones before partitioned.

    Of several models, the one with the most GPUs counts, in a tie the first by name; GPUs of
    unknown model count only without others. GFD's values flap instead, as it iterates over a map
    (v0.19.0, ``internal/lm``). Empty for a node without GPUs, and if lost GPUs of unknown model
    could change the choice.
    """
    gpus = counted(snapshot)
    counts = Counter(gpu.product for gpu in gpus)
    if not counts:
        return ()
    model = min(counts, key=lambda name: (name is None, -counts[name], name or ""))
    if lost := sum(map(is_of_lost_model, gpus)):
        # All of them could be of any other model, or of an unnamed one.
        others = [(-counts[name] - lost, name) for name in counts if name not in (None, model)]
        if model is None or min([*others, (-lost, "")]) < (-counts[model], model):
            return ()
    same = (gpu for gpu in gpus if gpu.product == model)
    return tuple(sorted(same, key=lambda gpu: gpu.is_divided))


def is_of_lost_model(gpu: Gpu) -> bool:
    """Return whether *gpu* was lost before it named its model."""
    return gpu.is_lost and gpu.product is None


def first_known(gpus: Iterable[Gpu], fact: Callable[[Gpu], _Fact | None]) -> _Fact | None:
    """Return *fact* of the first of *gpus* that has it: a lost GPU may lack it."""
    return next((known for gpu in gpus if (known := fact(gpu)) is not None), None)


def _of_node(fact: _Value) -> _Value:
    """Return *fact* for nodes with GPUs only: GFD labels no others."""
    return lambda snapshot: fact(snapshot) if counted(snapshot) else None


def _of_gpu(fact: Callable[[Gpu], _Fact | None]) -> Callable[[Snapshot], _Fact | None]:
    """Return *fact* of the model that represents the node."""
    return lambda snapshot: first_known(described(snapshot), fact)


def _driver_version(part: int | None = None) -> _Value:
    """Return the driver version, or one *part* of it."""

    def value(snapshot: Snapshot) -> RawValue:
        parts = (snapshot.driver_version or "").split(".")
        if len(parts) not in {2, 3}:  # GFD then refuses to label at all
            return None
        if part is None:
            return snapshot.driver_version if parts[0] else None
        return parts[part] if part < len(parts) else None

    return _of_node(value)


def _cuda_version(part: int | None = None) -> _Value:
    """Return the CUDA version of the driver, or one *part* of it."""

    def value(snapshot: Snapshot) -> RawValue:
        version = snapshot.cuda_version
        if version is None:
            return None
        return ".".join(map(str, version)) if part is None else version[part]

    return _of_node(value)


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    # A major of 0 stands for "unknown" with GFD, which then writes none of these labels.
    capability = gpu.compute_capability
    return capability if capability is not None and capability[0] > 0 else None


def _compute(part: int) -> _Value:
    return _of_gpu(lambda gpu: capability[part] if (capability := _capability(gpu)) else None)


def _family(gpu: Gpu) -> str | None:
    capability = _capability(gpu)
    if capability is None:
        return None
    if capability[0] == _TURING[0]:
        return "turing" if capability >= _TURING else "volta"
    if capability[0] == _ADA[0]:
        return "ada-lovelace" if capability >= _ADA else "ampere"
    return _FAMILIES.get(capability[0], "undefined")


def _is_mig_capable(snapshot: Snapshot) -> bool | None:
    if any(gpu.mig is not None for gpu in counted(snapshot)):
        return True
    is_unread = any(issue.call == "nvmlDeviceGetMigMode" for issue in snapshot.issues)
    is_unread |= any(gpu.is_of_lost_mode for gpu in counted(snapshot))
    return None if snapshot.driver_version is None or is_unread else False


def _mode(snapshot: Snapshot) -> str | None:
    gpus = counted(snapshot)
    placed = [gpu for gpu in gpus if gpu.function is not None or not gpu.is_lost]
    classes = [gpu.function and gpu.function.pci_class for gpu in placed]
    modes = {_MODES.get(pci_class or "", "unknown") for pci_class in classes}
    if len(modes) > 1:
        return "unknown"
    # A GPU lost before its PCI function was read can be of another class.
    return None if len(placed) < len(gpus) and modes != {"unknown"} else modes.pop()


_COMPUTE = ("nvmlDeviceGetCudaComputeCapability", "a handful")
_DRIVER = ("nvmlSystemGetDriverVersion", "one per driver version")
_RUNTIME = ("nvmlSystemGetCudaDriverVersion_v2", "one per driver version")
_THIRD = "Driver version, third part; absent if the version has two parts."
_MAJOR, _MINOR = (f"CUDA version that the driver supports, {part}." for part in ("major", "minor"))

_ROWS: tuple[tuple[str, str, tuple[str, str], _Value], ...] = (
    (
        "gpu.machine",
        "Machine type in the firmware; `unknown` if the firmware names none.",
        ("DMI `product_name`", "one per machine type"),
        _of_node(lambda snapshot: snapshot.product_name or "unknown"),
    ),
    ("cuda.driver-version.major", "Driver version, first part.", _DRIVER, _driver_version(0)),
    ("cuda.driver-version.minor", "Driver version, second part.", _DRIVER, _driver_version(1)),
    ("cuda.driver-version.revision", _THIRD, _DRIVER, _driver_version(2)),
    ("cuda.driver-version.full", "Driver version.", _DRIVER, _driver_version()),
    *(
        (f"cuda.driver.{old}", f"Older name of `cuda.driver-version.{new}`.", _DRIVER, value)
        for old, new, value in (
            ("major", "major", _driver_version(0)),
            ("minor", "minor", _driver_version(1)),
            ("rev", "revision", _driver_version(2)),
        )
    ),
    ("cuda.runtime-version.major", _MAJOR, _RUNTIME, _cuda_version(0)),
    ("cuda.runtime-version.minor", _MINOR, _RUNTIME, _cuda_version(1)),
    (
        "cuda.runtime-version.full",
        "CUDA version that the driver supports.",
        _RUNTIME,
        _cuda_version(),
    ),
    *(
        (
            f"cuda.runtime.{part}",
            f"Older name of `cuda.runtime-version.{part}`.",
            _RUNTIME,
            _cuda_version(at),
        )
        for at, part in enumerate(("major", "minor"))
    ),
    (
        "mig.capable",
        "Whether any GPU can be partitioned (MIG).",
        ("nvmlDeviceGetMigMode, supported or not", "2"),
        _of_node(_is_mig_capable),
    ),
    (
        "mps.capable",
        "Whether GPUs are shared through MPS; always `false`.",
        ("fixed", "1"),
        _of_node(lambda _: False),
    ),
    (
        "gpu.family",
        (
            "Architecture of the model in `gpu.product`; `undefined` if it is newer than this "
            "version of nodetopo."
        ),
        _COMPUTE,
        _of_gpu(_family),
    ),
    *(
        (
            f"gpu.compute.{part}",
            f"CUDA compute capability of the model in `gpu.product`, {part}.",
            _COMPUTE,
            _compute(at),
        )
        for at, part in enumerate(("major", "minor"))
    ),
    (
        "gpu.mode",
        "`compute` (3D controllers), `graphics` (VGA), or `unknown` if the GPUs differ.",
        ("PCI class in sysfs", "3"),
        _of_node(_mode),
    ),
)

ENTRIES = tuple(Label(f"nvidia.com/{name}", text, *of, value) for name, text, of, value in _ROWS)
