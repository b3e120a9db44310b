"""What NVIDIA's MIG strategies ask of a node: names of profiles, and GPUs that are all alike."""

import re
from collections.abc import Iterator, Sequence

from agent.model.gpu import Gpu
from agent.model.mig import MigInstance

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
