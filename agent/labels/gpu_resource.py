"""GFD's labels of resources: ``nvidia.com/gpu.*``, and the same about each MIG profile.

Facts of GFD are those of its sources, NVIDIA/k8s-device-plugin ``internal/lm``, v0.19.0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.labels.gpu import counted, described, first_known
from agent.labels.label import (
    LabelEntry,
    LabelFamily,
    LabelRow,
    RuledLabel,
    boolean,
    marked,
    number,
    sanitise,
)
from agent.labels.rules import LabelRules, SharedLabel
from agent.model.gpu import Gpu, MigAttributes, MigInstance, Virtualization
from agent.model.pci import VgpuHost
from agent.model.snapshot import Snapshot

# What the labels of one resource say: what it is, how many there are, how it is shared.
#
# Facts of GFD are those of its sources, NVIDIA/k8s-device-plugin ``internal/lm``, v0.19.0.

GPU = "nvidia.com/gpu"
"""Begins the keys about GPUs: GFD's, whatever the resource is called that offers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFacts:
    """One resource.

    Attributes:
        model: of the GPU; ``None`` where it, or the profile, is unknown.
        marks: what the product says behind the model: of MIG and of sharing.
        count: devices, before sharing multiplies them.
        replicas: how often each is offered; 0 for what GFD takes as impossible to share.
        strategy: ``none`` or ``time-slicing``; ``None`` where nothing is offered.
        memory_mib: of one device.
        attributes: of one MIG device; ``None`` for whole GPUs.
    """

    model: str | None
    count: int
    marks: tuple[str, ...] = ()
    replicas: int = 1
    strategy: str | None = "none"
    memory_mib: int | None = None
    attributes: MigAttributes | None = None

    @property
    def product(self) -> str | None:
        """Model and marks, joined by hyphens, as a valid label value."""
        return None if self.model is None else marked(self.model, self.marks)


def whole_gpus(snapshot: Snapshot, rules: LabelRules) -> ResourceFacts | None:
    """Return what the node's GPUs are, partitioned or not; ``None`` for a node without any.

    Sharing counts where one of them is whole: GFD says 0 replicas of a model whose every GPU
    is partitioned.
    """
    gpus = described(snapshot)
    if not gpus:
        return None
    facts = ResourceFacts(
        model=gpus[0].product,
        count=len(gpus),
        memory_mib=first_known(gpus, lambda gpu: gpu.memory_mib or None),
    )
    if gpus[0].is_divided:
        return replace(facts, replicas=0)
    return shared(facts, rules.shared.get(GPU))


def shared(facts: ResourceFacts, rule: SharedLabel | None) -> ResourceFacts:
    """Return *facts* of a resource that is shared by *rule*; ``None`` shares nothing.

    Only a resource that keeps its name says ``SHARED`` in its product: a new name tells enough.
    """
    if rule is None:
        return facts
    marks = facts.marks if rule.is_renamed else (*facts.marks, "SHARED")
    return replace(facts, marks=marks, replicas=rule.replicas, strategy="time-slicing")


# GFD's labels of nodes that are guests with virtual GPUs.
#
# GFD reads PCI config space alone, and so takes privileges to say that there is no vGPU; NVML
# tells that to everybody.


def _host(gpu: Gpu) -> VgpuHost | None:
    return None if gpu.function is None else gpu.function.vgpu_host


def _is_vgpu(gpu: Gpu) -> bool | None:
    if _host(gpu) is not None:
        return True
    return None if gpu.virtualization is None else gpu.virtualization is Virtualization.VGPU


def _is_present(snapshot: Snapshot) -> bool | None:
    """Return whether any GPU is virtual.

    One of which nothing is known leaves it open, unless it is lost and others tell.
    """
    told = {_is_vgpu(gpu) for gpu in counted(snapshot) if not gpu.is_lost}
    if True in told:
        return True
    return None if not told or None in told else False


def _of_host(fact: Callable[[VgpuHost], str]) -> Callable[[Snapshot], str | None]:
    def value(snapshot: Snapshot) -> str | None:
        found = first_known(counted(snapshot), _host)
        return None if found is None else fact(found)

    return value


_CONFIG_SPACE = "vendor-specific capability in the GPU's PCI config space"


VGPU_ENTRIES: tuple[LabelRow, ...] = (
    LabelEntry(
        key="nvidia.com/vgpu.present",
        meaning="Whether a GPU of this node is a virtual one (NVIDIA vGPU).",
        source=f"nvmlDeviceGetVirtualizationMode, {_CONFIG_SPACE}",
        cardinality="2",
        value=lambda snapshot: boolean(_is_present(snapshot)),
    ),
    LabelEntry(
        key="nvidia.com/vgpu.host-driver-version",
        meaning="Driver of the host that virtual GPUs come from; absent without them.",
        source=_CONFIG_SPACE,
        cardinality="one per driver version",
        value=_of_host(lambda host: host.driver_version),
    ),
    LabelEntry(
        key="nvidia.com/vgpu.host-driver-branch",
        meaning="Branch of that driver.",
        source=_CONFIG_SPACE,
        cardinality="one per driver version",
        value=_of_host(lambda host: host.driver_branch),
    ),
)


# What is offered of GPUs in MIG mode, by NVIDIA's strategies ``single`` and ``mixed``.
#
# Facts of GFD are those of its sources, NVIDIA/k8s-device-plugin ``internal/lm/mig-strategy.go``,
# v0.19.0. Unlike it, a MIG device that could not be read takes no other's labels with it.

LONGEST_PROFILE = 42
"""Characters of a profile's name; with ``mig-`` before it and ``.sharing-strategy`` behind it a
key's name has 63 (k8s.io/apimachinery validation)."""


_Part = tuple[Gpu, MigInstance]


def single(snapshot: Snapshot, rules: LabelRules) -> ResourceFacts | None:
    """Return what takes the place of the node's GPUs; ``None`` where GPUs keep it.

    A node that breaks a rule of the strategy offers nothing, and its product ends in
    ``MIG-INVALID``.
    """
    gpus = counted(snapshot)
    divided = [gpu for gpu in gpus if gpu.is_divided]
    if not divided:
        return None
    if breach(gpus) is not None:
        return ResourceFacts(
            model=divided[0].product,
            marks=("MIG-INVALID",),
            count=0,
            replicas=0,
            strategy=None,
            memory_mib=0,
        )
    return shared(_facts(_parts(gpus)), rules.shared.get(GPU))


def breach(gpus: Sequence[Gpu]) -> str | None:
    """Say what keeps *gpus* from the strategy ``single``; ``None`` if nothing does.

    Either no GPU is in MIG mode, or all are, each with MIG devices and all of one profile. A
    lost GPU whose mode was never read breaks no rule, nor does a profile that was not.
    """
    divided = [gpu for gpu in gpus if gpu.is_divided]
    if any(not gpu.mig.instances for gpu in divided if gpu.mig is not None):
        return "a GPU is in MIG mode without a MIG device"
    if divided and any(_is_whole(gpu) for gpu in gpus):
        return "some GPUs are in MIG mode and some are not"
    profiles = {one.profile for _, one in _parts(gpus) if one.profile is not None}
    return "there are MIG devices of several profiles" if len(profiles) > 1 else None


def mixed(snapshot: Snapshot, rules: LabelRules) -> Mapping[str, ResourceFacts]:
    """Return the MIG devices of each profile, by how their keys begin.

    Also those that share their GPU instance, which no resource offers: GFD counts them too.
    """
    alike: dict[str, list[_Part]] = {}
    for part in _parts(counted(snapshot)):
        name = _name(part[1])
        if name is not None:
            alike.setdefault(f"nvidia.com/mig-{name}", []).append(part)
    return {stem: shared(_facts(parts), rules.shared.get(stem)) for stem, parts in alike.items()}


def _facts(parts: Sequence[_Part]) -> ResourceFacts:
    """Return what *parts* are, which are alike; the first speaks for all."""
    gpu, first = parts[0]
    name = _name(first)
    attributes = next((one.attributes for _, one in parts if one.attributes is not None), None)
    return ResourceFacts(
        model=None if name is None else gpu.product,
        marks=(f"MIG-{name}",),
        count=len(parts),
        memory_mib=None if attributes is None else attributes.memory_mib,
        attributes=attributes,
    )


def _parts(gpus: Iterable[Gpu]) -> list[_Part]:
    return [(gpu, one) for gpu in gpus if gpu.mig is not None for one in gpu.mig.instances]


def _is_whole(gpu: Gpu) -> bool:
    return not gpu.is_divided and not (gpu.is_lost and gpu.mig is None)


def _name(instance: MigInstance) -> str | None:
    """Return the profile as keys spell it, ``1g.10gb.me``; ``None`` for one that none can hold."""
    name = (instance.profile or "").replace("+", ".")
    return name if name and sanitise(name) == name and len(name) <= LONGEST_PROFILE else None


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
    parts = single(snapshot, rules) if rules.mig == "single" else None
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
        found = mixed(snapshot, rules) if rules.mig == "mixed" else {}
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
