"""GFD's labels of resources: ``nvidia.com/gpu.*``, and the same about each MIG profile.

Facts of GFD are those of its sources, NVIDIA/k8s-device-plugin ``internal/lm``, v0.19.0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.labels import mig
from agent.labels.gpu_facts import GPU, ResourceFacts, whole_gpus
from agent.labels.label import LabelFamily, LabelRow, RuledLabel, number
from agent.labels.rules import LabelRules
from agent.model.mig import MigAttributes
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suffix:
    """The end of a key, and what the label says.

    Attributes:
        gpu: of ``nvidia.com/gpu.*``; what it says of MIG devices is added.
        mig: of ``nvidia.com/mig-<profile>.*``.
    """

    name: str
    gpu: str
    mig: str
    source: str
    cardinality: str
    value: Callable[[ResourceFacts], str | None]


def facts(snapshot: Snapshot, rules: LabelRules) -> ResourceFacts | None:
    """Return what ``nvidia.com/gpu.*`` describes by *rules*; ``None`` without GPUs."""
    parts = mig.single(snapshot, rules) if rules.mig == "single" else None
    return whole_gpus(snapshot, rules) if parts is None else parts


def _strategy(snapshot: Snapshot, rules: LabelRules) -> str | None:
    return rules.mig if rules.mig != "none" and whole_gpus(snapshot, rules) else None


def _of_gpu(suffix: _Suffix) -> LabelRow:
    def value(snapshot: Snapshot, rules: LabelRules) -> str | None:
        found = facts(snapshot, rules)
        return None if found is None else suffix.value(found)

    return RuledLabel(
        key=f"{GPU}.{suffix.name}",
        meaning=suffix.gpu,
        source=suffix.source,
        cardinality=suffix.cardinality,
        value=value,
    )


def _of_profile(suffix: _Suffix) -> LabelRow:
    def values(snapshot: Snapshot, rules: LabelRules) -> Mapping[str, str | None]:
        found = mig.mixed(snapshot, rules) if rules.mig == "mixed" else {}
        return {f"{stem}.{suffix.name}": suffix.value(one) for stem, one in found.items()}

    return LabelFamily(
        key=f"nvidia.com/mig-<profile>.{suffix.name}",
        meaning=suffix.mig,
        source=suffix.source,
        cardinality=suffix.cardinality,
        values=values,
    )


_NVML_ATTRIBUTES = "nvmlDeviceGetAttributes_v2"
_FEW = "a handful"


def _of_attribute(name: str, what: str, value: Callable[[MigAttributes], int]) -> _Suffix:
    return _Suffix(
        name=name,
        gpu=f"{what} of one MIG device, under the MIG strategy `single`.",
        mig=f"{what} of one of them.",
        source=_NVML_ATTRIBUTES,
        cardinality=_FEW,
        value=lambda one: None if one.attributes is None else number(value(one.attributes)),
    )


_SUFFIXES = (
    _Suffix(
        name="product",
        gpu="GPU model. With several models: the one with most GPUs, then the first by name. "
        "Under the MIG strategy `single`: with `MIG-<profile>`, or `MIG-INVALID` where the GPUs "
        "are not all alike. Ends in `SHARED` where GPUs are, and are not renamed.",
        mig="GPU model with `MIG-<profile>`, under the MIG strategy `mixed`.",
        source="nvmlDeviceGetName, settings",
        cardinality="one per GPU model",
        value=lambda one: one.product,
    ),
    _Suffix(
        name="count",
        gpu="GPUs of that model, or MIG devices; 0 for `MIG-INVALID`.",
        mig="MIG devices of that profile.",
        source="nvmlDeviceGetCount_v2, nvmlDeviceGetName",
        cardinality=_FEW,
        value=lambda one: str(one.count),
    ),
    _Suffix(
        name="replicas",
        gpu="How often each is offered: 1 unless shared; 0 where MIG partitions all of them, or "
        "for `MIG-INVALID`.",
        mig="How often each is offered: 1 unless shared.",
        source="nvmlDeviceGetMigMode, settings",
        cardinality=_FEW,
        value=lambda one: str(one.replicas),
    ),
    _Suffix(
        name="sharing-strategy",
        gpu="How they are shared: `none` or `time-slicing`; absent for `MIG-INVALID`.",
        mig="How they are shared: `none` or `time-slicing`.",
        source="settings",
        cardinality="2",
        value=lambda one: one.strategy,
    ),
    _Suffix(
        name="memory",
        gpu="Memory of one GPU of that model, or of one MIG device, MiB; 0 for `MIG-INVALID`.",
        mig="Memory of one of them, MiB.",
        source=f"nvmlDeviceGetMemoryInfo, {_NVML_ATTRIBUTES}",
        cardinality="one per GPU model",
        value=lambda one: number(one.memory_mib),
    ),
    _of_attribute("multiprocessors", "Multiprocessors", lambda one: one.multiprocessors),
    _of_attribute("slices.gi", "GPU slices", lambda one: one.gpu_instance_slices),
    _of_attribute("slices.ci", "Compute slices", lambda one: one.compute_instance_slices),
    _of_attribute("engines.copy", "Copy engines", lambda one: one.copy_engines),
    _of_attribute("engines.decoder", "Video decoders", lambda one: one.decoders),
    _of_attribute("engines.encoder", "Video encoders", lambda one: one.encoders),
    _of_attribute("engines.jpeg", "JPEG decoders", lambda one: one.jpeg_engines),
    _of_attribute("engines.ofa", "Optical flow engines", lambda one: one.ofa_engines),
)

ENTRIES: tuple[LabelRow, ...] = (
    RuledLabel(
        key="nvidia.com/mig.strategy",
        meaning="How MIG devices are offered: `single` or `mixed`; absent for neither.",
        source="settings",
        cardinality="2",
        value=_strategy,
    ),
    *map(_of_gpu, _SUFFIXES),
    *map(_of_profile, _SUFFIXES),
)
