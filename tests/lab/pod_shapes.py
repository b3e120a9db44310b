"""Pods of every shape that decides a QoS class, drawn from a fixed seed."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from tests.lab.api import Object

CPU: tuple[Mapping[str, str], ...] = (
    {},
    {"requests": "1"},
    {"limits": "2"},
    {"requests": "1000m", "limits": "1"},
    {"requests": "0.5", "limits": "500m"},
    {"requests": "1", "limits": "2"},
    {"requests": "0", "limits": "1"},
    {"requests": "0", "limits": "0"},
    {"limits": "0"},
    {"requests": "1e0", "limits": "1000m"},
    {"requests": "100u", "limits": "1m"},
)
"""What a container states of CPU."""

MEMORY: tuple[Mapping[str, str], ...] = (
    {},
    {"requests": "1Gi"},
    {"limits": "1Gi"},
    {"requests": "1024Mi", "limits": "1Gi"},
    {"requests": "1Gi", "limits": "2Gi"},
    {"requests": "0", "limits": "1Gi"},
    {"requests": "0", "limits": "0"},
    {"requests": "1073741824", "limits": "1Gi"},
    {"requests": "1e9", "limits": "1G"},
    {"requests": "1.5Gi", "limits": "1536Mi"},
)
"""What it states of memory."""

EQUAL = 3
"""The place of a request that equals its limit, in both."""

OTHERS: tuple[Mapping[str, str], ...] = (
    {},
    {"nvidia.com/gpu": "4"},
    {"hugepages-2Mi": "4Mi"},
    {"ephemeral-storage": "1Gi"},
)
"""Limits that do not decide the class."""

WHOLE: tuple[Mapping[str, Mapping[str, str]] | None, ...] = (
    *([None] * 6),
    {},
    {"requests": {}, "limits": {}},
    {"limits": {"cpu": "64", "memory": "64Gi"}},
    {"requests": {"cpu": "64", "memory": "64Gi"}, "limits": {"cpu": "64", "memory": "64Gi"}},
    {"requests": {"cpu": "64", "memory": "64Gi"}},
    {"requests": {"cpu": "64"}, "limits": {"memory": "64Gi"}},
    {"limits": {"cpu": "64"}},
    {"limits": {"hugepages-2Mi": "64Mi"}},
    {"limits": {"memory": "0"}},
    {"requests": {"cpu": "0", "memory": "0"}, "limits": {"cpu": "64", "memory": "64Gi"}},
)
"""What a pod states as a whole; ``None``: no such field."""

RANGES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "default-limits": {"default": {"cpu": "2", "memory": "1Gi"}},
    "default-requests": {"defaultRequest": {"cpu": "1", "memory": "512Mi"}},
    "cpu-requests": {"defaultRequest": {"cpu": "1"}},
    "most-and-least": {"max": {"cpu": "16"}, "min": {"memory": "1"}},
    "all-of-it": {
        "default": {"cpu": "4"},
        "defaultRequest": {"cpu": "2", "ephemeral-storage": "1Gi"},
        "max": {"cpu": "8", "memory": "32Gi"},
        "min": {"cpu": "0", "nvidia.com/gpu": "0"},
    },
}
"""Namespace → what its LimitRange says of containers; nothing where it has none."""


_EMPTY = {"name": "app", "image": "lab/none"}


def limit_range(namespace: str) -> Object | None:
    """Return the LimitRange of *namespace*."""
    if not RANGES[namespace]:
        return None
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "range", "namespace": namespace},
        "spec": {"limits": [{"type": "Container", **RANGES[namespace]}]},
    }


BARE = 80
"""Pods that ask for neither CPU nor memory, as drawn ones hardly ever do."""


def pods(count: int, seed: int) -> Iterator[Object]:
    """Yield every pod of one empty container, *count* drawn ones and :data:`BARE` bare ones.

    They are the same for each *seed*.
    """
    for namespace in RANGES:
        for whole in (each for each in WHOLE if each is not None):
            yield _named(f"empty-{WHOLE.index(whole)}", namespace, {"containers": [_EMPTY]}, whole)
    random = Random(seed)
    for number in range(count):
        yield _pod(random, number)
    for number in range(BARE):
        yield _bare(random, number)


def _bare(random: Random, number: int) -> Object:
    nothing: tuple[Mapping[str, Any], ...] = (
        {},
        {"limits": {"cpu": "0"}},
        {"requests": {"memory": "0"}, "limits": {"memory": "0"}},
        {"limits": {"nvidia.com/gpu": "4", "ephemeral-storage": "1Gi"}},
    )
    containers = [
        {"name": f"app-{n}", "image": "lab/none", "resources": random.choice(nothing)}
        for n in range(random.choice((1, 1, 2, 3)))
    ]
    wholes: tuple[Mapping[str, Any] | None, ...] = (None, None, {}, {"requests": {}, "limits": {}})
    whole = random.choice(wholes)
    return _named(f"bare-{number}", "default", {"containers": containers}, whole)


def _pod(random: Random, number: int) -> Object:
    likes_equal = random.random() < 0.5
    init = [
        _container(random, f"init-{n}", likes_equal) for n in range(random.choice((0, 0, 1, 2)))
    ]
    for container in init:
        if random.random() < 0.4:
            container["restartPolicy"] = "Always"
    apps = [_container(random, f"app-{n}", likes_equal) for n in range(random.choice((1, 1, 2, 3)))]
    spec = {"initContainers": init, "containers": apps}
    namespace = random.choice(sorted(RANGES))
    return _named(f"shape-{number}", namespace, spec, random.choice(WHOLE))


def _named(
    name: str, namespace: str, spec: Object, whole: Mapping[str, Mapping[str, str]] | None
) -> Object:
    resources = {} if whole is None else {"resources": whole}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, **resources, "automountServiceAccountToken": False},
    }


def _container(random: Random, name: str, likes_equal: bool) -> Object:
    resources: dict[str, dict[str, str]] = {}
    for resource, choices in (("cpu", CPU), ("memory", MEMORY)):
        is_equal = likes_equal and random.random() < 0.85
        for side, amount in (choices[EQUAL] if is_equal else random.choice(choices)).items():
            resources.setdefault(side, {})[resource] = amount
    for resource, amount in random.choice(OTHERS).items():
        resources.setdefault("limits", {})[resource] = amount
    return {"name": name, "image": "lab/none", **({"resources": resources} if resources else {})}
