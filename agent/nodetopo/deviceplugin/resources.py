"""A node's offered resources and their devices: a function of snapshot and rules.

Resources and their names follow NVIDIA's plugin (k8s-device-plugin v0.19.0,
internal/rm/device_map.go and rm.go; device names left out: go-nvlib v0.7.3,
pkg/nvlib/device/api.go). In cases where NVIDIA's plugin stops with an error, the remaining devices
are still offered.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import (
    Minors,
    PluginDevice,
    capabilities,
    copies,
    is_excluded,
    list_bytes,
    matches,
    most_that_fit,
    size_problem,
    with_nodes,
)
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.model.gpu import DISPLAYS, Gpu, MigInstance
from nodetopo.model.gpu_health import GpuHealth, HealthView
from nodetopo.model.kubernetes import GPU_RESOURCE
from nodetopo.model.snapshot import Snapshot

LONGEST_NAME = 63
"""Characters of a resource's name, domain included (k8s-device-plugin v0.19.0,
api/config/v1/consts.go)."""

_PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb(?:[+-][a-z0-9]+(?:\.[a-z0-9]+)*)*", re.ASCII)
"""A GPU instance that one compute instance fills; others begin with their own slices,
``1c.3g.20gb``, and NVIDIA names no resource after them."""

_HEALTHY = GpuHealth()
"""The health of a GPU without known faults."""

_ALL_HEALTHY: HealthView = MappingProxyType({})


class MigStrategy(StrEnum):
    """The strategy for offering MIG devices, with NVIDIA's names.

    ``none``: every GPU is offered whole, in MIG mode or not. ``single``: MIG devices replace GPUs,
    which must all be alike. ``mixed``: each profile is a separate resource.
    """

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class Shared(Struct, frozen=True, kw_only=True):
    """How a resource is shared: the *name* it is offered under, its *replicas* per device."""

    name: str
    replicas: int


class Rules(Struct, frozen=True, kw_only=True):
    """The mapping of devices to resources."""

    resource: str = GPU_RESOURCE  # of whole GPUs; all others share its domain
    mig: MigStrategy = MigStrategy.NONE
    # By the resource's name without sharing.
    shared: Mapping[str, Shared] = field(default_factory=lambda: MappingProxyType({}))
    excluded: tuple[str, ...] = ()  # names of GPUs to leave out (`devices.matches`)
    numa: NumaReport = NumaReport.NUMA  # that the kubelet is given


class Resource(Struct, frozen=True, kw_only=True):
    """One resource with all of its devices, lost ones included."""

    name: str
    unshared_name: str
    devices: tuple[PluginDevice, ...]
    gpus: Mapping[str, str]  # id of the device → id of its GPU
    shared: Shared | None = None  # None where it is not shared

    @property
    def is_shared(self) -> bool:
        return self.shared is not None

    @property
    def is_whole(self) -> bool:
        """Whether the devices are GPUs, each offered once."""
        return all(name == gpu for name, gpu in self.gpus.items())


class Refusal(Struct, frozen=True, kw_only=True):
    """A reason for not offering a *resource* as configured, or single devices if it is ``None``."""

    resource: str | None
    reason: str


class Offer(Struct, frozen=True, kw_only=True):
    """A node's offered resources, each with devices, without duplicates."""

    resources: tuple[Resource, ...]
    refusals: tuple[Refusal, ...] = ()
    unused_exclusions: tuple[str, ...] = ()  # match no GPU of the node; empty if no GPU is known


def only_healthy(offered: Offer, uuids: Collection[str]) -> Offer:
    """Return *offered* with all devices Unhealthy except those in *uuids*."""
    resources = []
    for resource in offered.resources:
        devices = tuple(
            device if device.uuid in uuids else replace(device, is_healthy=False)
            for device in resource.devices
        )
        resources.append(replace(resource, devices=devices))
    return replace(offered, resources=tuple(resources))


def offer(
    snapshot: Snapshot,
    rules: Rules,
    minors: Minors,
    health: HealthView = _ALL_HEALTHY,
    last: Sequence[Resource] = (),
) -> Offer:
    """Return the offer of *snapshot* by *rules*; *minors* number MIG devices' nodes.

    Every device, replicas and MIG devices included, has the health and NUMA node of its GPU; a lost
    GPU is unhealthy regardless of *health*. GPUs without a UUID cannot be offered, and excluded
    ones are treated as absent. A resource with more replicas than a kubelet reads is refused, and
    shared as in *last*, the resources that were offered before.
    """
    gpus = offerable(snapshot.gpus, rules)
    units, refusals = _Units(gpus, minors, health).by_resource(rules)
    if not gpus and any(is_excluded(gpu, rules.excluded) for gpu in snapshot.gpus):
        refusals.append(Refusal(resource=None, reason="exclude-gpus leaves no GPU"))
    resources = []
    for name, unshared in units.items():
        own = with_nodes([device for device, _ in unshared], snapshot)
        gpu_of = {device.id: gpu for device, gpu in unshared}
        before = [_fitting(one, own, rules) for one in last if one.unshared_name == name]
        for shared in (rules.shared.get(name), *before):
            count = None if shared is None else shared.replicas
            problem = size_problem([(device, count) for device in own], rules.numa, "its replicas")
            if problem is not None:
                offered_name = name if shared is None else shared.name
                refusals.append(Refusal(resource=offered_name, reason=str(problem)))
                continue
            if own:
                resources.append(_resource(name, own, gpu_of, shared))
            break
    unused = (
        name for name in rules.excluded if not any(matches(gpu, name) for gpu in snapshot.gpus)
    )
    return Offer(
        resources=tuple(resources),
        refusals=tuple(refusals),
        unused_exclusions=tuple(unused) if snapshot.gpus else (),
    )


def _fitting(last: Resource, own: Sequence[PluginDevice], rules: Rules) -> Shared | None:
    """Return how *last* was shared, less often if *own* has become a longer list."""
    shared = last.shared
    if shared is None:
        return None

    def size(count: int) -> int:
        return list_bytes([(device, count) for device in own], rules.numa)

    return replace(shared, replicas=most_that_fit(shared.replicas, size))


def _resource(
    name: str, own: Sequence[PluginDevice], gpu_of: Mapping[str, str], shared: Shared | None
) -> Resource:
    """Return the resource of the devices *own*, which is called *name* unless it is *shared*."""
    count = None if shared is None else shared.replicas
    return Resource(
        name=name if shared is None else shared.name,
        unshared_name=name,
        devices=tuple(copy for device in own for copy in copies(device, count)),
        gpus=MappingProxyType(
            {copy.id: gpu_of[device.id] for device in own for copy in copies(device, count)}
        ),
        shared=shared,
    )


def offerable(gpus: Iterable[Gpu], rules: Rules) -> list[Gpu]:
    """Return the *gpus* that compute, have a UUID, and are not excluded."""
    return [
        gpu
        for gpu in gpus
        if gpu.uuid and gpu.product not in DISPLAYS and not is_excluded(gpu, rules.excluded)
    ]


_Unit = tuple[PluginDevice, str]
"""A device of an unshared resource, and the id of its GPU."""


class _Units(Struct, frozen=True):
    """Make devices of *gpus*, as they are unshared."""

    gpus: Sequence[Gpu]
    minors: Minors
    health: HealthView

    def by_resource(self, rules: Rules) -> tuple[dict[str, list[_Unit]], list[Refusal]]:
        """Return the devices by the name of their resource, and the refusals."""
        resource = rules.resource
        divided = [gpu for gpu in self.gpus if gpu.is_divided]
        if rules.mig is MigStrategy.SINGLE and (reasons := tuple(breaches(self.gpus))):
            reason = f"the MIG strategy single wants one profile everywhere: {'; '.join(reasons)}"
            return {}, [Refusal(resource=resource, reason=reason)]
        if rules.mig is MigStrategy.NONE or not divided:
            return {resource: [self.whole(gpu) for gpu in self.gpus]}, []

        instances = [
            (gpu, instance) for gpu in divided if gpu.mig for instance in gpu.mig.instances
        ]
        if rules.mig is MigStrategy.SINGLE:
            return {resource: [self.part(gpu, one) for gpu, one in instances]}, []

        units = {resource: [self.whole(gpu) for gpu in self.gpus if gpu not in divided]}
        refusals = [
            Refusal(resource=None, reason=f"{named(gpu)} is in MIG mode and has no MIG device")
            for gpu in divided
            if gpu.mig is not None and not gpu.mig.instances
        ]
        parts: dict[str, list[str]] = {}
        for gpu, one in instances:
            name = mig_resource(resource, one.profile)
            if name is None:
                parts.setdefault(one.profile or "an unknown profile", []).append(named(gpu))
            else:
                units.setdefault(name, []).append(self.part(gpu, one))
        if parts:  # in one line: a node can have dozens of them
            listed = "; ".join(
                f"{len(gpus)} of {profile} on {', '.join(dict.fromkeys(gpus))}"
                for profile, gpus in sorted(parts.items())
            )
            reason = f"MIG devices that no resource is named after: {listed}"
            refusals.append(Refusal(resource=None, reason=reason))
        return units, refusals

    def whole(self, gpu: Gpu) -> _Unit:
        nodes = () if gpu.numa_node is None else (gpu.numa_node,)
        is_healthy = not gpu.is_lost and self.health.get(gpu.id, _HEALTHY).is_healthy
        device = PluginDevice(id=gpu.id, is_healthy=is_healthy, numa_nodes=nodes, minor=gpu.minor)
        return device, gpu.id

    def part(self, gpu: Gpu, one: MigInstance) -> _Unit:
        device, _ = self.whole(gpu)
        numbers = capabilities(self.minors, gpu.minor, one.gpu_instance, one.compute_instance)
        return replace(device, id=one.uuid, capabilities=numbers), gpu.id


def mig_resource(resource: str, profile: str | None) -> str | None:
    """Return the resource of MIG devices of *profile*, in the domain of *resource*.

    ``None`` if no resource can be named after it: its compute instance is only a part of its GPU
    instance, or the name would be invalid.
    """
    if profile is None or _PROFILE.fullmatch(profile) is None:
        return None
    name = f"{resource.rpartition('/')[0]}/mig-{profile.replace('+', '.')}"
    return name if len(name) <= LONGEST_NAME else None


def breaches(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Yield the violations of the strategy ``single`` by *gpus*, GPU by GPU.

    Either no GPU is in MIG mode, or all are, each with a MIG device and all MIG devices alike. A
    lost GPU of unknown mode is not a violation.
    """
    divided = [gpu for gpu in gpus if gpu.is_divided]
    if not divided:
        return
    whole = [gpu for gpu in gpus if not gpu.is_divided and not gpu.is_of_lost_mode]
    if whole:
        names = ", ".join(map(named, whole))
        yield f"not in MIG mode, while {divided[0].name} is: {names}"
    filled = [(gpu, gpu.mig.instances) for gpu in divided if gpu.mig and gpu.mig.instances]
    if empty := [gpu for gpu in divided if gpu.mig and not gpu.mig.instances]:
        yield f"in MIG mode without a MIG device: {', '.join(map(named, empty))}"
    if not filled:
        return

    model, (first, *_) = filled[0]
    unknown = "an unknown profile"
    for gpu, instances in filled:
        others = sorted(
            {instance.profile or unknown for instance in instances if _differ(first, instance)}
        )
        if others:
            has = f"{named(gpu)} has {', '.join(others)}"
            yield f"{has} where {model.name} has {first.profile or unknown}"


def _differ(a: MigInstance, b: MigInstance) -> bool:
    """Compare the composition of the devices, or their profiles if that is unknown."""
    if a.attributes is not None and b.attributes is not None:
        return a.attributes != b.attributes
    return a is not b and (a.profile is None or a.profile != b.profile)


def named(gpu: Gpu) -> str:
    """Return the GPU's name with its UUID: numbers change when a GPU disappears."""
    return f"{gpu.name} ({gpu.uuid})"
