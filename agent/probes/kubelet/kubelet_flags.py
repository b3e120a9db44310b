"""The kubelet's flags, read as it reads them.

Names and kinds: kubernetes v1.36.3 cmd/kubelet/app/options/options.go (AddKubeletConfigFlags);
syntax: spf13/pflag, and k8s.io/component-base v0.36.3 cli/flag for maps.
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from agent.errors import DecodeError
from agent.model.go_bool import go_bool
from agent.probes.kubelet.merge import Merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag as given.

    Attributes:
        name: without dashes in front, with ``-`` for ``_``.
        origin: ``--name``, and the file that has it where that is not the command line.
    """

    name: str
    value: str
    origin: str


def flags_of(words: Iterable[str], place: str = "") -> tuple[Flag, ...]:
    """Return the flags in *words* that are known here, in order.

    ``--a=b`` and ``--a b`` are the same, but for a switch, which takes no word after it.

    Args:
        place: the file that has the words.
    """
    found: list[Flag] = []
    left = iter(words)
    for word in left:
        head, equals, value = word.partition("=")
        name = head.removeprefix("--").replace("_", "-")
        if not word.startswith("--") or name not in FLAGS:
            continue
        if not equals:
            value = "true" if name in SWITCHES else next(left, "")
        origin = f"--{name} in {place}" if place else f"--{name}"
        found.append(Flag(name=name, value=value, origin=origin))
    return tuple(found)


def last(flags: Iterable[Flag], name: str) -> str | None:
    """Return the value that counts of a flag with one value; ``None`` where it is not given."""
    values = [flag.value for flag in flags if flag.name == name]
    return values[-1] if values else None


def override(merge: Merge, flags: Iterable[Flag]) -> bool:
    """Put *flags* over the files; return whether any of them is a field of the configuration.

    Raises:
        DecodeError: a value that the kubelet would refuse; the path is the flag.
    """
    by_field: dict[str, list[Flag]] = {}
    for flag in flags:
        if flag.name in _FIELDS:
            by_field.setdefault(flag.name, []).append(flag)
    for name, given in by_field.items():
        field, read = _FIELDS[name]
        try:
            value = read([flag.value for flag in given])
        except ValueError as error:
            raise DecodeError(given[-1].origin, str(error)) from None
        merge.override(given[-1].origin, field, value)
    return bool(by_field)


def _text(values: list[str]) -> str:
    return values[-1]


def _switch(values: list[str]) -> bool:
    found = go_bool(values[-1])
    if found is None:
        raise ValueError(f"neither true nor false: {values[-1][:40]!r}")
    return found


def _whole(values: list[str]) -> int:
    try:
        return int(values[-1], 0)
    except ValueError:
        raise ValueError(f"not a whole number: {values[-1][:40]!r}") from None


def _list(values: list[str]) -> list[str]:
    return [word for row in csv.reader(value for value in values if value) for word in row]


def _pairs(values: list[str], separator: str = "=") -> dict[str, str]:
    """Join all occurrences: the first one clears what the file said, the others add."""
    return dict(_pair(item, separator) for value in values for item in value.split(",") if item)


def _pair(text: str, separator: str) -> tuple[str, str]:
    key, found, amount = text.partition(separator)
    if not found:
        raise ValueError(f"not a list of key{separator}value: {text[:80]!r}")
    return key.strip(), amount.strip()


def _thresholds(values: list[str]) -> dict[str, str]:
    return _pairs(values, "<")


def _single_pairs(values: list[str]) -> dict[str, str]:
    """One pair an occurrence: a comma is part of the value (NewMapStringStringNoSplit)."""
    return dict(_pair(value, "=") for value in values)


def _gates(values: list[str]) -> dict[str, bool]:
    return {key: _switch([value]) for key, value in _pairs(values).items()}


def _reservations(values: list[str]) -> list[dict[str, Any]]:
    """Read ``0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=1Gi`` (pkg/util/flag, ReservedMemoryVar)."""
    return [_reservation(item) for value in values if value for item in value.split(";")]


def _reservation(text: str) -> dict[str, Any]:
    node, found, limits = text.partition(":")
    if not found or not node.isdecimal():
        raise ValueError(f"not of the form node:type=quantity: {text[:80]!r}")
    return {"numaNode": int(node), "limits": dict(_pair(one, "=") for one in limits.split(","))}


_FIELDS: Mapping[str, tuple[str, Callable[[list[str]], Any]]] = MappingProxyType(
    {
        "cpu-manager-policy": ("cpuManagerPolicy", _text),
        "cpu-manager-policy-options": ("cpuManagerPolicyOptions", _single_pairs),
        "memory-manager-policy": ("memoryManagerPolicy", _text),
        "topology-manager-policy": ("topologyManagerPolicy", _text),
        "topology-manager-scope": ("topologyManagerScope", _text),
        "topology-manager-policy-options": ("topologyManagerPolicyOptions", _pairs),
        "reserved-cpus": ("reservedSystemCPUs", _text),
        "system-reserved": ("systemReserved", _pairs),
        "kube-reserved": ("kubeReserved", _pairs),
        "eviction-hard": ("evictionHard", _thresholds),
        "reserved-memory": ("reservedMemory", _reservations),
        "feature-gates": ("featureGates", _gates),
        "enforce-node-allocatable": ("enforceNodeAllocatable", _list),
        "system-reserved-cgroup": ("systemReservedCgroup", _text),
        "kube-reserved-cgroup": ("kubeReservedCgroup", _text),
        "cgroup-driver": ("cgroupDriver", _text),
        "cpu-cfs-quota": ("cpuCFSQuota", _switch),
        "fail-swap-on": ("failSwapOn", _switch),
        "pod-max-pids": ("podPidsLimit", _whole),
        "max-pods": ("maxPods", _whole),
    },
)
"""Flag → field of KubeletConfiguration, and how its occurrences are read."""

SWITCHES = frozenset({"cpu-cfs-quota", "fail-swap-on"})
"""Flags that mean true when they stand alone (pflag, NoOptDefVal)."""

FLAGS = frozenset({"config", "config-dir", "root-dir", *_FIELDS})
"""The kubelet's flags that are read."""
