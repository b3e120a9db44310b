"""GFD's labels of resources: ``nvidia.com/gpu.*``, the same about each MIG profile, and vGPUs.

They describe a resource, its device count and its sharing. Source of GFD's behaviour:
NVIDIA/k8s-device-plugin ``internal/lm`` (``mig-strategy.go`` for MIG), v0.19.0. Unlike with GFD, a
MIG device that could not be read leaves the labels of others alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.labels.gpu import counted, described, first_known, is_of_lost_model
from nodetopo.components.labels.label import Label, RawValue, label, marked, sanitise
from nodetopo.components.labels.rules import LabelRules, SharedLabel
from nodetopo.model.gpu import Gpu, MigAttributes, MigInstance, Virtualization
from nodetopo.model.kubernetes import GPU_RESOURCE, MIG_RESOURCES
from nodetopo.model.pci import VgpuHost
from nodetopo.model.snapshot import Snapshot

LONGEST_PROFILE = 42
"""Characters of a profile's name; with ``mig-`` before it and ``.sharing-strategy`` behind it a
key's name has 63 (k8s.io/apimachinery validation)."""

_Part = tuple[Gpu, MigInstance]


class ResourceFacts(Struct, frozen=True, kw_only=True):
    """A resource."""

    model: str | None  # of the GPU; ``None`` if it or the profile is unknown
    # Devices, before sharing multiplies them; ``None`` if a lost GPU may have more.
    count: int | None
    # Suffixes of the model in the product label, for MIG and for sharing.
    marks: tuple[str, ...] = ()
    # Of each device; 0 if GFD considers it not shareable, ``None`` if that depends on a lost GPU.
    replicas: int | None = 1
    # ``none`` or ``time-slicing``; ``None`` if nothing is offered, or if that depends on a lost
    # GPU.
    strategy: str | None = "none"
    memory_mib: int | None = None  # of one device
    attributes: MigAttributes | None = None  # of one MIG device; ``None`` for whole GPUs

    def shared(self, rule: SharedLabel | None) -> "ResourceFacts":
        """Return the facts with the resource shared by *rule*; ``None`` shares nothing.

        Only a resource that keeps its name has ``SHARED`` in its product: a new name is enough.
        """
        if rule is None:
            return self
        marks = self.marks if rule.is_renamed else (*self.marks, "SHARED")
        return replace(self, marks=marks, replicas=rule.replicas, strategy="time-slicing")


def facts(snapshot: Snapshot, rules: LabelRules) -> ResourceFacts | None:
    """Return the resource that ``nvidia.com/gpu.*`` describes by *rules*.

    ``None`` without GPUs, and if it depends on unknown facts of a lost GPU.
    """
    if rules.mig != "single":
        return whole_gpus(snapshot, rules)
    gpus = counted(snapshot)
    if any(gpu.is_of_lost_mode for gpu in gpus) and breach(gpus) is None:
        return None
    parts = single(snapshot, rules)
    return whole_gpus(snapshot, rules) if parts is None else parts


def whole_gpus(snapshot: Snapshot, rules: LabelRules) -> ResourceFacts | None:
    """Return the facts of the node's GPUs, partitioned or not; ``None`` for a node without any.

    Sharing counts where one of them is whole: GFD writes 0 replicas of a model whose every GPU is
    partitioned.
    """
    gpus = described(snapshot)
    if not gpus:
        return None
    lost = any(map(is_of_lost_model, counted(snapshot)))
    rule = rules.shared.get(GPU_RESOURCE)
    whole = ResourceFacts(
        model=gpus[0].product,
        count=None if lost else len(gpus),
        memory_mib=first_known(gpus, lambda gpu: gpu.memory_mib or None),
    )
    if any(not gpu.is_divided and not gpu.is_of_lost_mode for gpu in gpus):
        return whole.shared(rule)
    if all(gpu.is_divided for gpu in gpus) and not lost:
        return replace(whole, replicas=0)
    whole = replace(whole, replicas=None)
    return whole if rule is None else replace(whole, model=None, strategy=None)


def single(snapshot: Snapshot, rules: LabelRules) -> ResourceFacts | None:
    """Return the facts that replace those of GPUs under the MIG strategy ``single``.

    ``None`` if no GPU is in MIG mode. A node that violates the strategy offers no devices, and its
    product ends in ``MIG-INVALID``.
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
    return _facts(_parts(gpus)).shared(rules.shared.get(GPU_RESOURCE))


def breach(gpus: Sequence[Gpu]) -> str | None:
    """Return how *gpus* violate the strategy ``single``; ``None`` if they do not.

    Either no GPU is in MIG mode, or all are, each with MIG devices and all of one profile. A lost
    GPU of unknown mode is no violation, nor is an unread profile.
    """
    divided = [gpu for gpu in gpus if gpu.is_divided]
    if any(not gpu.mig.instances for gpu in divided if gpu.mig is not None):
        return "a GPU is in MIG mode without a MIG device"
    whole = [gpu for gpu in gpus if not gpu.is_divided and not gpu.is_of_lost_mode]
    if divided and whole:
        return "some GPUs are in MIG mode and some are not"
    profiles = {instance.profile for _, instance in _parts(gpus) if instance.profile is not None}
    return "there are MIG devices of several profiles" if len(profiles) > 1 else None


def mixed(snapshot: Snapshot, rules: LabelRules) -> Mapping[str, ResourceFacts]:
    """Return the facts of each MIG profile under the strategy ``mixed``, by resource.

    Also of MIG devices that share their GPU instance, which no resource offers: GFD counts them,
    too.
    """
    alike: dict[str, list[_Part]] = {}
    for part in _parts(counted(snapshot)):
        name = _profile(part[1])
        if name is not None:
            alike.setdefault(f"{MIG_RESOURCES}{name}", []).append(part)
    facts = {name: _facts(parts).shared(rules.shared.get(name)) for name, parts in alike.items()}
    if any(gpu.is_of_lost_mode for gpu in counted(snapshot)):
        return {name: replace(known, count=None) for name, known in facts.items()}
    return facts


def _facts(parts: Sequence[_Part]) -> ResourceFacts:
    """Return the facts of *parts*, which are alike: the first represents all."""
    gpu, first = parts[0]
    name = _profile(first)
    attributes = next((it.attributes for _, it in parts if it.attributes is not None), None)
    return ResourceFacts(
        model=None if name is None else gpu.product,
        marks=(f"MIG-{name}",),
        count=len(parts),
        memory_mib=None if attributes is None else attributes.memory_mib,
        attributes=attributes,
    )


def _parts(gpus: Iterable[Gpu]) -> list[_Part]:
    return [(gpu, instance) for gpu in gpus if gpu.mig for instance in gpu.mig.instances]


def _profile(instance: MigInstance) -> str | None:
    """Return the profile in the form of keys, ``1g.10gb.me``; ``None`` if no key can hold it."""
    name = (instance.profile or "").replace("+", ".")
    return name if name and sanitise(name) == name and len(name) <= LONGEST_PROFILE else None


def _of_gpu(value: Callable[[ResourceFacts], RawValue]) -> Callable[..., RawValue]:
    def of_gpu(snapshot: Snapshot, rules: LabelRules) -> RawValue:
        described = facts(snapshot, rules)
        return None if described is None else value(described)

    return of_gpu


def _of_profiles(
    name: str, value: Callable[[ResourceFacts], RawValue]
) -> Callable[..., Mapping[str, RawValue]]:
    def of_profiles(snapshot: Snapshot, rules: LabelRules) -> Mapping[str, RawValue]:
        profiles = mixed(snapshot, rules) if rules.mig == "mixed" else {}
        return {f"{key}.{name}": value(it) for key, it in profiles.items()}

    return of_profiles


_SUFFIXES = (
    (
        "product",
        (
            "GPU model. With several models, the model with the most GPUs, then the first by "
            "name. Under the MIG strategy `single`, with `MIG-<profile>`, or `MIG-INVALID` if "
            "the GPUs are partitioned differently. Ends in `SHARED` if GPUs are shared and "
            "the resource is not renamed."
        ),
        "GPU model with `MIG-<profile>`, under the MIG strategy `mixed`.",
        ("nvmlDeviceGetName, settings", "one per GPU model"),
        lambda it: None if it.model is None else marked(it.model, it.marks),
    ),
    (
        "count",
        "GPUs of the model in `gpu.product`, or MIG devices; 0 for `MIG-INVALID`.",
        "MIG devices of the profile.",
        ("nvmlDeviceGetCount_v2, nvmlDeviceGetName", "a handful"),
        lambda it: it.count,
    ),
    (
        "replicas",
        (
            "Replicas of each GPU: 1 unless shared; 0 if MIG partitions all GPUs, or for "
            "`MIG-INVALID`."
        ),
        "Replicas of each MIG device of the profile: 1 unless shared.",
        ("nvmlDeviceGetMigMode, settings", "a handful"),
        lambda it: it.replicas,
    ),
    (
        "sharing-strategy",
        "Sharing of the GPUs: `none` or `time-slicing`; absent for `MIG-INVALID`.",
        "Sharing of the MIG devices of the profile: `none` or `time-slicing`.",
        ("settings", "2"),
        lambda it: it.strategy,
    ),
    (
        "memory",
        (
            "Memory of one GPU of the model in `gpu.product`, or of one MIG device, MiB; 0 "
            "for `MIG-INVALID`."
        ),
        "Memory of one MIG device of the profile, MiB.",
        ("nvmlDeviceGetMemoryInfo, nvmlDeviceGetAttributes_v2", "one per GPU model"),
        lambda it: it.memory_mib,
    ),
    *(
        (
            name,
            f"{what} of one MIG device, under the MIG strategy `single`.",
            f"{what} of one MIG device of the profile.",
            ("nvmlDeviceGetAttributes_v2", "a handful"),
            lambda it, of=attrgetter(attribute): it.attributes and of(it.attributes),
        )
        for name, what, attribute in (
            ("multiprocessors", "Multiprocessors", "multiprocessors"),
            ("slices.gi", "GPU slices", "gpu_instance_slices"),
            ("slices.ci", "Compute slices", "compute_instance_slices"),
            ("engines.copy", "Copy engines", "copy_engines"),
            ("engines.decoder", "Video decoders", "decoders"),
            ("engines.encoder", "Video encoders", "encoders"),
            ("engines.jpeg", "JPEG decoders", "jpeg_engines"),
            ("engines.ofa", "Optical flow engines", "ofa_engines"),
        )
    ),
)
"""The ends of keys: the meaning of ``nvidia.com/gpu.*``, and of ``nvidia.com/mig-<profile>.*``."""


def _vgpu_host(gpu: Gpu) -> VgpuHost | None:
    return None if gpu.function is None else gpu.function.vgpu_host


def _is_vgpu_present(snapshot: Snapshot) -> bool | None:
    """Return whether any GPU is virtual; unknown if a GPU's state is.

    GFD reads only PCI config space, and so needs privileges to rule out a vGPU; NVML needs none.
    """
    known: set[bool | None] = set()
    for gpu in counted(snapshot):
        if _vgpu_host(gpu) is not None or gpu.virtualization is Virtualization.VGPU:
            return True
        known.add(None if gpu.virtualization is None else False)
    return None if not known or None in known else False


def _of_vgpu_host(fact: Callable[[VgpuHost], str]) -> Callable[[Snapshot], str | None]:
    def value(snapshot: Snapshot) -> str | None:
        host = first_known(counted(snapshot), _vgpu_host)
        return None if host is None else fact(host)

    return value


_CONFIG_SPACE = "vendor-specific capability in the GPU's PCI config space"

ENTRIES = (
    label(
        "nvidia.com/mig.strategy",
        "MIG strategy: `single` or `mixed`; absent for `none`.",
        "settings",
        "2",
        is_ruled=True,
    )(lambda snapshot, rules: rules.mig if rules.mig != "none" and counted(snapshot) else None),
    *(
        Label(f"{GPU_RESOURCE}.{name}", gpu, *source, _of_gpu(value), is_ruled=True)
        for name, gpu, _, source, value in _SUFFIXES
    ),
    *(
        Label(f"{MIG_RESOURCES}<profile>.{name}", mig, *source, _of_profiles(name, value), True)
        for name, _, mig, source, value in _SUFFIXES
    ),
    label(
        "nvidia.com/vgpu.present",
        "Whether a GPU of this node is a virtual one (NVIDIA vGPU).",
        f"nvmlDeviceGetVirtualizationMode, {_CONFIG_SPACE}",
        "2",
    )(_is_vgpu_present),
    label(
        "nvidia.com/vgpu.host-driver-version",
        "Driver version of the host of virtual GPUs; absent without virtual GPUs.",
        _CONFIG_SPACE,
        "one per driver version",
    )(_of_vgpu_host(lambda host: host.driver_version)),
    label(
        "nvidia.com/vgpu.host-driver-branch",
        "Driver branch of the host of virtual GPUs.",
        _CONFIG_SPACE,
        "one per driver version",
    )(_of_vgpu_host(lambda host: host.driver_branch)),
)
