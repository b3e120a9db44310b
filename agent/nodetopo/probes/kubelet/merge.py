"""Merges defaults, a file, drop-ins and flags into a kubelet's configuration.

As kubernetes v1.36.3 cmd/kubelet/app/server.go does it (NewKubeletCommand, loadConfigFile,
mergeKubeletConfigurations, kubeletConfigFlagPrecedence), and since 1.32 did: the file, defaulted;
the drop-ins as RFC 7386 merge patches on that, defaulted again; then the flags once more.
Consequences, among others:

- hard eviction has defaults only where there is a file, so that ``evictionHard: null`` in a drop-in
  leaves none;
- with a drop-in directory, even an empty one, what is empty in the file (``evictionHard: {}``,
  ``enforceNodeAllocatable: []``) is lost, and defaulted where a default exists;
- drop-ins are decoded by a decoder that takes ``cpumanagerpolicy`` for ``cpuManagerPolicy``, after
  that key, and so in its place, and ``CPUManagerPolicy`` before it, so that the default wins;
- a flag replaces a map, but for feature gates, which it changes one by one;
- ``reservedSystemCPUs`` takes ``cpu`` out of ``kubeReserved``, and puts the number of the CPUs in
  its place in ``systemReserved``; ``/configz`` shows that where ``systemReserved`` was stated.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from nodetopo.errors import DecodeError
from nodetopo.model.digits import is_digits
from nodetopo.model.kubelet_keys import KEYS, Keys, spelled
from nodetopo.model.kubernetes import go_bool
from nodetopo.model.numa import CpuSet
from nodetopo.probes.kubelet.fields import DEFAULT_EVICTION, DEFAULTS, FIELDS, Document

_FOLDED = {field.lower(): field for field in FIELDS}


class Merge:
    """A configuration being merged, lowest precedence first."""

    def __init__(self) -> None:
        """Begin without any file: with no defaults for hard eviction."""
        self._document: Document = {}
        self._origins: dict[str, str] = {}
        # Drop-ins and keys in them that lose to the same key in its own case.
        self.overridden: set[tuple[str, str]] = set()

    def load(self, file: Document, origin: str) -> None:
        """Take the file of ``--config``."""
        self._document = {
            field: value for field, value in file.items() if field in FIELDS and value is not None
        }
        self._origins = dict.fromkeys(_leaves(self._document), origin)
        eviction = self._document.get("evictionHard")
        if eviction is None:
            self._document["evictionHard"] = dict(DEFAULT_EVICTION)
        elif file.get("mergeDefaultEvictionSettings") is True and isinstance(eviction, dict):
            self._document["evictionHard"] = {**DEFAULT_EVICTION, **eviction}

    def open_directory(self) -> None:
        """Encode the file again, as the kubelet does where ``--config-dir`` is given."""
        self.settle()
        self._document = {
            field: value for field, value in self._document.items() if value not in ("", {}, [])
        }

    def patch(self, drop_in: Document, origin: str) -> None:
        """Take the next drop-in."""
        known = {key: value for key, value in drop_in.items() if key.lower() in _FOLDED}
        self._document = _patched(self._document, known)
        for key, value in known.items():
            if value is not None:
                self._origins |= dict.fromkeys(_leaves({key: value}), origin)

    def close_directory(self) -> None:
        """Decode the result of the drop-ins as Go's encoding/json does, ignoring the case of keys.

        It goes through the keys in the order in which they were written out, by their bytes.
        """
        merged, origins = self._document, self._origins
        self._document, self._origins = {}, {}
        previous: dict[str, str] = {}  # field → the key before, in another case
        for key in sorted(merged):
            field = _FOLDED[key.lower()]
            value, before = _recased(merged[key], KEYS[field]), self._document.get(field)
            if isinstance(before, dict) and isinstance(value, dict):
                value = before | value
            self._document[field] = value
            for leaf in _leaves({key: merged[key]}):
                inner = leaf[len(key) + 1 :]
                name = spelled(inner, KEYS[field], any_case=True) or inner
                own = f"{field}.{name}" if inner else field
                self._origins.pop(own, None)
                if leaf in origins:
                    self._origins[own] = origins[leaf]

            if field in previous:
                earlier = merged[previous[field]]
                # Maps without a common key are both kept.
                both = isinstance(earlier, dict) and isinstance(merged[key], dict)
                if not both or earlier.keys() & merged[key].keys():
                    leaves = _leaves({previous[field]: earlier})
                    self.overridden |= {
                        (origins[leaf], previous[field]) for leaf in leaves if leaf in origins
                    }
            previous[field] = key

    def settle(self) -> None:
        """Put defaults for fields that are missing, or that Go's decoder reads as missing."""
        for field, default in DEFAULTS.items():
            value = self._document.get(field)
            # 0 pods and -5 processes mean the defaults.
            is_default = isinstance(value, int | float) and (
                (field == "maxPods" and value == 0) or (field == "podPidsLimit" and value < 0)
            )
            if value in (None, "") or is_default:
                self._document[field] = default
                self._origins.pop(field, None)

    def override(self, flag: str, field: str, value: Any) -> None:
        """Take a flag's *value* of *field*, after :meth:`settle`; *flag* is its origin."""
        before = self._document.get(field)
        self._origins |= dict.fromkeys(_leaves({field: value}), flag)
        if field == "featureGates" and isinstance(before, dict):
            value = before | value
        self._document[field] = value

    def finish(self) -> tuple[Document, Mapping[str, str]]:
        """Return the configuration, and for each field that is stated where that is."""
        try:
            count = len(CpuSet.parse(self._document.get("reservedSystemCPUs") or ""))
        except (ValueError, AttributeError):  # not a list of CPUs, or no text at all
            count = 0
        kube, system = self._document.get("kubeReserved"), self._document.get("systemReserved")
        if count and isinstance(kube, dict):
            self._document["kubeReserved"] = {key: kube[key] for key in kube if key != "cpu"}
        if count and isinstance(system, dict):
            self._document["systemReserved"] = {**system, "cpu": str(count)}
            self._origins["systemReserved.cpu"] = self._origins["reservedSystemCPUs"]
        stated = sorted(self._origins.keys() & set(_leaves(self._document)))
        return self._document, {path: self._origins[path] for path in stated}


def _recased(value: Any, known: Keys) -> Any:
    """Return *value* with the keys of the objects in it in their own case, and no unknown ones."""
    if isinstance(value, list):
        return [_recased(item, known) for item in value]
    if not isinstance(value, dict) or not known:
        return value
    named = ((spelled(key, known, any_case=True), value[key]) for key in sorted(value))
    return {name: inner for name, inner in named if name is not None}


def _leaves(document: Document) -> Iterator[str]:
    """Yield the path of each field; for a map, of each entry."""
    for field in sorted(document):
        value = document[field]
        if isinstance(value, dict):
            yield from (f"{field}.{key}" for key in value)
        else:
            yield field


def _patched(document: Any, patch: Any) -> Any:
    """Apply *patch* as gopkg.in/evanphx/json-patch.v4 does: RFC 7386, without null in lists."""
    if isinstance(patch, list):
        return [item for item in patch if item is not None]
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _patched(result.get(key), value)
    return result


class Flag(Struct, frozen=True, kw_only=True):
    """One flag of the kubelet as given.

    Names and types: kubernetes v1.36.3 cmd/kubelet/app/options/options.go
    (AddKubeletConfigFlags); syntax: spf13/pflag, and k8s.io/component-base v0.36.3 cli/flag for
    maps.
    """

    name: str  # without dashes in front, with ``-`` for ``_``
    value: str
    origin: str  # ``--name``, and the file that has it where that is not the command line


def flags_of(words: Iterable[str], place: str = "") -> tuple[Flag, ...]:
    """Return the flags in *words* that are read here, in order.

    ``--a=b`` and ``--a b`` are the same, except for a switch, which takes no word after it.

    Args:
        place: the file that has the words.
    """
    flags: list[Flag] = []
    left = iter(words)
    for word in left:
        head, equals, value = word.partition("=")
        name = head.removeprefix("--").replace("_", "-")
        if not word.startswith("--") or name not in FLAGS:
            continue
        if not equals:
            value = "true" if name in SWITCHES else next(left, "")
        origin = f"--{name} in {place}" if place else f"--{name}"
        flags.append(Flag(name=name, value=value, origin=origin))
    return tuple(flags)


def last(flags: Iterable[Flag], name: str) -> str | None:
    """Return the value that counts of a flag with one value; ``None`` where it is not given."""
    values = [flag.value for flag in flags if flag.name == name]
    return values[-1] if values else None


def override(merge: Merge, flags: Iterable[Flag]) -> bool:
    """Override the files with *flags*; return whether any sets a field of the configuration.

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
    value = go_bool(values[-1])
    if value is None:
        raise ValueError(f"neither true nor false: {values[-1][:40]!r}")
    return value


def _whole(values: list[str]) -> int:
    try:
        return int(values[-1].encode("ascii"), 0)
    except ValueError:
        raise ValueError(f"not a whole number: {values[-1][:40]!r}") from None


def _pairs(values: list[str], separator: str = "=") -> dict[str, str]:
    """Join all occurrences: the first one clears the file's value, the others add."""
    return dict(_pair(item, separator) for value in values for item in value.split(",") if item)


def _pair(text: str, separator: str = "=") -> tuple[str, str]:
    key, is_pair, amount = text.partition(separator)
    if not is_pair:
        raise ValueError(f"not a list of key{separator}value: {text[:80]!r}")
    return key.strip(), amount.strip()


def _reservations(values: list[str]) -> list[dict[str, Any]]:
    """Read ``0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=1Gi`` (pkg/util/flag, ReservedMemoryVar)."""
    reservations = []
    for text in (item for value in values if value for item in value.split(";")):
        node, is_pair, limits = text.partition(":")
        if not is_pair or not is_digits(node):
            raise ValueError(f"not of the form node:type=quantity: {text[:80]!r}")
        reservations.append({"numaNode": int(node), "limits": dict(map(_pair, limits.split(",")))})
    return reservations


_FIELDS: Mapping[str, tuple[str, Callable[[list[str]], Any]]] = MappingProxyType(
    {
        "cpu-manager-policy": ("cpuManagerPolicy", _text),
        "cpu-manager-policy-options": (
            "cpuManagerPolicyOptions",
            # One pair an occurrence: a comma is part of the value (NewMapStringStringNoSplit).
            lambda values: dict(map(_pair, values)),
        ),
        "memory-manager-policy": ("memoryManagerPolicy", _text),
        "topology-manager-policy": ("topologyManagerPolicy", _text),
        "topology-manager-scope": ("topologyManagerScope", _text),
        "topology-manager-policy-options": ("topologyManagerPolicyOptions", _pairs),
        "reserved-cpus": ("reservedSystemCPUs", _text),
        "system-reserved": ("systemReserved", _pairs),
        "kube-reserved": ("kubeReserved", _pairs),
        "eviction-hard": ("evictionHard", lambda values: _pairs(values, "<")),
        "reserved-memory": ("reservedMemory", _reservations),
        "feature-gates": (
            "featureGates",
            lambda values: {key: _switch([value]) for key, value in _pairs(values).items()},
        ),
        "enforce-node-allocatable": (
            "enforceNodeAllocatable",
            lambda values: [word for row in csv.reader(filter(None, values)) for word in row],
        ),
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
"""Flags that mean true without a value (pflag, NoOptDefVal)."""


FLAGS = frozenset({"config", "config-dir", "root-dir", *_FIELDS})
"""The kubelet's flags that are read."""
