"""What is offered of GPUs in MIG mode, by NVIDIA's strategies ``single`` and ``mixed``.

Facts of GFD are those of its sources, NVIDIA/k8s-device-plugin ``internal/lm/mig-strategy.go``,
v0.19.0. Unlike it, a MIG device that could not be read takes no other's labels with it.
"""

from collections.abc import Iterable, Mapping, Sequence

from agent.labels.gpu_facts import GPU, ResourceFacts, shared
from agent.labels.gpu_model import counted
from agent.labels.label import sanitise
from agent.labels.rules import LabelRules
from agent.model.gpu import Gpu
from agent.model.mig import MigInstance
from agent.model.snapshot import Snapshot

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
