"""Which resources a node offers, and their devices: a function of the snapshot and the rules.

What is offered under which name is NVIDIA's way (k8s-device-plugin v0.19.0,
internal/rm/device_map.go and rm.go; device names left out: go-nvlib v0.7.3,
pkg/nvlib/device/api.go). Where NVIDIA's plugin ends with an error we offer what we can.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from agent.allocation.shared.devices import SEPARATOR
from agent.deviceplugin.devices import (
    Minors,
    PluginDevice,
    capabilities,
    is_excluded,
    unused,
    with_nodes,
)
from agent.health.status import GpuHealth, HealthView
from agent.model.gpu import DISPLAYS, Gpu, MigInstance
from agent.model.snapshot import Snapshot

# What NVIDIA's MIG strategies ask of a node: names of profiles, and GPUs that are all alike.

LONGEST_NAME = 63
"""Characters of a resource's name, domain included (k8s-device-plugin v0.19.0,
api/config/v1/consts.go)."""


_PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb(?:[+-][a-z0-9]+(?:\.[a-z0-9]+)*)*", re.ASCII)
"""A GPU instance that one compute instance fills; others begin with their own slices,
``1c.3g.20gb``, and NVIDIA names no resource after them."""


def named(gpu: Gpu) -> str:
    """Return the GPU's name with its UUID: numbers move when a GPU goes away."""
    return f"{gpu.name} ({gpu.uuid})"


def mig_resource(resource: str, profile: str | None) -> str | None:
    """Return the resource of MIG devices of *profile*, in the domain of *resource*.

    ``None`` where none may be named after it: its compute instance is a part only of its GPU
    instance, or the name would not do.
    """
    if profile is None or _PROFILE.fullmatch(profile) is None:
        return None
    name = f"{resource.rpartition('/')[0]}/mig-{profile.replace('+', '.')}"
    return name if len(name) <= LONGEST_NAME else None


def breaches(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Say what keeps *gpus* from the strategy ``single``, GPU by GPU; nothing if all is well.

    Either no GPU is in MIG mode, or all are, each with a MIG device and all of those alike.
    A lost GPU whose mode was never read breaks no rule.
    """
    divided = [gpu for gpu in gpus if gpu.is_divided]
    if not divided:
        return
    whole = [gpu for gpu in gpus if not gpu.is_divided and not (gpu.is_lost and gpu.mig is None)]
    if whole:
        yield f"not in MIG mode, while {divided[0].name} is: {_listed(whole)}"
    filled = [(gpu, gpu.mig.instances) for gpu in divided if gpu.mig and gpu.mig.instances]
    if empty := [gpu for gpu in divided if gpu.mig and not gpu.mig.instances]:
        yield f"in MIG mode without a MIG device: {_listed(empty)}"
    if not filled:
        return
    model, (first, *_) = filled[0]
    for gpu, instances in filled:
        others = sorted({_profile(one) for one in instances if _differ(first, one)})
        if others:
            has = f"{named(gpu)} has {', '.join(others)}"
            yield f"{has} where {model.name} has {_profile(first)}"


def _differ(a: MigInstance, b: MigInstance) -> bool:
    """Compare what the devices consist of; their profiles where that is not known."""
    if a.attributes is not None and b.attributes is not None:
        return a.attributes != b.attributes
    return a is not b and (a.profile is None or a.profile != b.profile)


def _profile(instance: MigInstance) -> str:
    return instance.profile or "an unknown profile"


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(map(named, gpus))


MOST_DEVICES = 10_000
"""Of one resource. The kubelet drops a list over gRPC's 4 MiB (kubernetes issue 109304); so
many take under 1 MiB."""


SOUND = GpuHealth()
"""Of a GPU of which nothing bad is known."""


_ALL_SOUND: HealthView = MappingProxyType({})


class MigStrategy(StrEnum):
    """What becomes of MIG devices; the words are NVIDIA's.

    ``none``: every GPU is offered whole, in MIG mode or not. ``single``: MIG devices take the
    place of GPUs, which must all be alike. ``mixed``: each profile is a resource of its own.
    """

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """How a resource is shared: the *name* it is offered under, its *replicas* per device."""

    name: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How devices become resources.

    Attributes:
        resource: the name of whole GPUs; its domain is that of all others.
        shared: by the name that the resource would have unshared.
        excluded: names of GPUs that are not offered (:mod:`agent.deviceplugin.devices`).
    """

    resource: str = "nvidia.com/gpu"
    mig: MigStrategy = MigStrategy.NONE
    shared: Mapping[str, Shared] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource with all of its devices, lost ones included.

    Attributes:
        unshared_name: what it would be called if it were not shared.
        gpus: the id of each device's GPU, by the device's id.
    """

    name: str
    unshared_name: str
    devices: tuple[PluginDevice, ...]
    gpus: Mapping[str, str] = field(hash=False)

    @property
    def is_shared(self) -> bool:
        """Whether its devices are replicas."""
        return any(device.is_replica for device in self.devices)

    @property
    def is_whole(self) -> bool:
        """Whether its devices are GPUs, each offered once."""
        return all(name == gpu for name, gpu in self.gpus.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that is not offered; *resource* is all of one, ``None`` single devices."""

    resource: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """All that a node offers: no resource without devices, none twice.

    Attributes:
        unused_exclusions: those of the rules' names that no GPU of the node has; empty where
            no GPU is known.
    """

    resources: tuple[Resource, ...]
    refusals: tuple[Refusal, ...] = ()
    unused_exclusions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Unit:
    """What one device of an unshared resource is."""

    device: PluginDevice
    gpu: str


@dataclass(frozen=True, slots=True)
class _Node:
    """The GPUs to offer, with all that their devices depend on."""

    gpus: Sequence[Gpu]
    minors: Minors
    health: HealthView


_Named = tuple[Mapping[str, Sequence[_Unit]], Sequence[Refusal]]
"""Units by the name of their resource, and what is left out."""


def offer(
    snapshot: Snapshot, rules: Rules, minors: Minors, health: HealthView = _ALL_SOUND
) -> Offer:
    """Return what *snapshot* offers by *rules*; *minors* name the device nodes of MIG devices.

    A device, a replica or a MIG device too, is as healthy, and near the same NUMA nodes, as its
    GPU: one that is lost, or is not healthy by *health*, is none of it. GPUs without a UUID
    cannot be offered, and excluded ones are as if they were not there.
    """
    gpus = offerable(snapshot.gpus, rules)
    units, refusals = _by_strategy(_Node(gpus, minors, health), rules)
    sizes = {name: len(found) * _share(name, rules) for name, found in units.items() if found}
    too_large = [_too_large(name, rules, n) for name, n in sizes.items() if n > MOST_DEVICES]
    if not gpus and any(is_excluded(gpu, rules.excluded) for gpu in snapshot.gpus):
        refusals = (Refusal(resource=None, reason="exclude-gpus leaves no GPU"),)
    return Offer(
        resources=tuple(
            _resource(name, units[name], rules, snapshot)
            for name, n in sizes.items()
            if n <= MOST_DEVICES  # the others may be more than the memory holds
        ),
        refusals=(*refusals, *too_large),
        unused_exclusions=unused(snapshot.gpus, rules.excluded) if snapshot.gpus else (),
    )


def offerable(gpus: Iterable[Gpu], rules: Rules) -> list[Gpu]:
    """Return those of *gpus* that are to compute on, have a UUID, and are not excluded."""
    return [
        gpu
        for gpu in gpus
        if gpu.uuid and gpu.product not in DISPLAYS and not is_excluded(gpu, rules.excluded)
    ]


def _by_strategy(node: _Node, rules: Rules) -> _Named:
    match rules.mig:
        case MigStrategy.NONE:
            return {rules.resource: _whole(node.gpus, node)}, ()
        case MigStrategy.SINGLE:
            return _single(node, rules.resource)
        case MigStrategy.MIXED:
            return _mixed(node, rules.resource)


def _single(node: _Node, resource: str) -> _Named:
    if reasons := tuple(breaches(node.gpus)):
        reason = f"the MIG strategy single wants one profile everywhere: {'; '.join(reasons)}"
        return {}, (Refusal(resource=resource, reason=reason),)
    divided = [gpu for gpu in node.gpus if gpu.is_divided]
    if not divided:
        return {resource: _whole(node.gpus, node)}, ()
    return {resource: [_part(gpu, one, node) for gpu, one in _instances(divided)]}, ()


def _mixed(node: _Node, resource: str) -> _Named:
    divided = [gpu for gpu in node.gpus if gpu.is_divided]
    units = {resource: _whole((gpu for gpu in node.gpus if gpu not in divided), node)}
    refusals = [
        Refusal(resource=None, reason=f"{named(gpu)} is in MIG mode and has no MIG device")
        for gpu in divided
        if gpu.mig is not None and not gpu.mig.instances
    ]
    for gpu, one in _instances(divided):
        name = mig_resource(resource, one.profile)
        if name is None:
            what = f"{one.uuid} of {named(gpu)} has the profile {one.profile or '?'}"
            reason = f"{what}, which no resource is named after"
            refusals.append(Refusal(resource=None, reason=reason))
        else:
            units.setdefault(name, []).append(_part(gpu, one, node))
    return units, refusals


def _instances(gpus: Iterable[Gpu]) -> Iterable[tuple[Gpu, MigInstance]]:
    return ((gpu, one) for gpu in gpus if gpu.mig is not None for one in gpu.mig.instances)


def _whole(gpus: Iterable[Gpu], node: _Node) -> list[_Unit]:
    return [_Unit(_device(gpu, gpu.id, node), gpu.id) for gpu in gpus]


def _part(gpu: Gpu, one: MigInstance, node: _Node) -> _Unit:
    numbers = capabilities(node.minors, gpu.minor, one.gpu_instance, one.compute_instance)
    return _Unit(replace(_device(gpu, one.uuid, node), capabilities=numbers), gpu.id)


def _device(gpu: Gpu, name: str, node: _Node) -> PluginDevice:
    nodes = () if gpu.numa_node is None else (gpu.numa_node,)
    is_healthy = not gpu.is_lost and node.health.get(gpu.id, SOUND).is_healthy
    return PluginDevice(id=name, is_healthy=is_healthy, numa_nodes=nodes, minor=gpu.minor)


def _resource(name: str, units: Sequence[_Unit], rules: Rules, snapshot: Snapshot) -> Resource:
    if name in rules.shared:
        units = [one for unit in units for one in _replicas(unit, _share(name, rules))]
    return Resource(
        name=_offered_name(name, rules),
        unshared_name=name,
        devices=with_nodes([unit.device for unit in units], snapshot),
        gpus=MappingProxyType({unit.device.id: unit.gpu for unit in units}),
    )


def _replicas(unit: _Unit, count: int) -> Iterable[_Unit]:
    ids = (f"{unit.device.id}{SEPARATOR}{number}" for number in range(count))
    return (_Unit(replace(unit.device, id=name), unit.gpu) for name in ids)


def _share(name: str, rules: Rules) -> int:
    """Return how many devices each unit of the resource *name* is offered as."""
    shared = rules.shared.get(name)
    return 1 if shared is None else shared.replicas


def _offered_name(name: str, rules: Rules) -> str:
    shared = rules.shared.get(name)
    return name if shared is None else shared.name


def _too_large(name: str, rules: Rules, size: int) -> Refusal:
    what = f"{size} devices; a kubelet takes {MOST_DEVICES} at most"
    return Refusal(resource=_offered_name(name, rules), reason=f"{what}: lower its replicas")
