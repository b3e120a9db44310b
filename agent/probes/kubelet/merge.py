"""How defaults, a file, drop-ins and flags become the one configuration of a kubelet.

As kubernetes v1.36.3 cmd/kubelet/app/server.go does it (NewKubeletCommand, loadConfigFile,
mergeKubeletConfigurations, kubeletConfigFlagPrecedence), and since 1.32 did: the file, defaulted;
the drop-ins as RFC 7386 merge patches on that, defaulted again; then the flags once more. From
that follow, among others:

- hard eviction has defaults only where there is a file, so that ``evictionHard: null`` in a
  drop-in leaves none;
- with a drop-in directory, even an empty one, what is empty in the file (``evictionHard: {}``,
  ``enforceNodeAllocatable: []``) is lost, and defaulted where a default exists;
- drop-ins are decoded by a decoder that takes ``cpumanagerpolicy`` for ``cpuManagerPolicy``, after
  that key, and so in its place, and ``CPUManagerPolicy`` before it, so that the default wins;
- a flag replaces a map, but for feature gates, which it changes one by one;
- ``reservedSystemCPUs`` takes ``cpu`` out of ``kubeReserved``, and puts the number of the CPUs in
  its place in ``systemReserved``; ``/configz`` shows that where ``systemReserved`` was stated.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from agent.model.kubelet_keys import KEYS, Keys, spelled
from agent.model.numa import CpuSet
from agent.probes.kubelet.fields import DEFAULT_EVICTION, DEFAULTS, FIELDS, Document

_FOLDED = {field.lower(): field for field in FIELDS}


class Merge:
    """One configuration while it is put together, lowest precedence first.

    Attributes:
        overridden: drop-ins, and keys in them, in whose place the same key in its own case counts.
    """

    def __init__(self) -> None:
        """Begin without any file: with no defaults for hard eviction."""
        self._document: Document = {}
        self._origins: dict[str, str] = {}
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
        """Do what the kubelet does where ``--config-dir`` is given: write the file out anew."""
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
        """Decode what the drop-ins made as Go's encoding/json does, whatever the case of keys.

        It goes through them in the order in which they were written out, by their bytes.
        """
        merged, origins = self._document, self._origins
        self._document, self._origins = {}, {}
        for key in sorted(merged):
            field = _FOLDED[key.lower()]
            value, before = _recased(merged[key], KEYS[field]), self._document.get(field)
            if isinstance(before, dict) and isinstance(value, dict):
                value = before | value
            self._document[field] = value
            for leaf in _leaves({key: merged[key]}):
                own = _recased_leaf(leaf, key, field)
                self._origins.pop(own, None)
                if leaf in origins:
                    self._origins[own] = origins[leaf]
        self.overridden = {
            (origins[leaf], key)
            for key, later in _spelled_again(merged)
            for leaf in _leaves({key: merged[key]})
            if leaf in origins and not _is_beside(merged[key], merged[later])
        }

    def settle(self) -> None:
        """Put defaults where the files have nothing, or what Go's decoder reads as nothing."""
        for field, default in DEFAULTS.items():
            value = self._document.get(field)
            if value in (None, "") or _is_no_number(field, value):
                self._document[field] = default
                self._origins.pop(field, None)

    def override(self, flag: str, field: str, value: Any) -> None:
        """Take what a flag says of *field*, after :meth:`settle`; *flag* is its origin."""
        before = self._document.get(field)
        self._origins |= dict.fromkeys(_leaves({field: value}), flag)
        if field == "featureGates" and isinstance(before, dict):
            value = before | value
        self._document[field] = value

    def finish(self) -> tuple[Document, Mapping[str, str]]:
        """Return the configuration, and for each field that is stated where that is."""
        self._reserve_cpus()
        stated = sorted(self._origins.keys() & set(_leaves(self._document)))
        return self._document, {path: self._origins[path] for path in stated}

    def _reserve_cpus(self) -> None:
        try:
            count = len(CpuSet.parse(self._document.get("reservedSystemCPUs") or ""))
        except (ValueError, AttributeError):  # not a list of CPUs, or no text at all
            return
        kube, system = self._document.get("kubeReserved"), self._document.get("systemReserved")
        if count and isinstance(kube, dict):
            self._document["kubeReserved"] = {key: kube[key] for key in kube if key != "cpu"}
        if count and isinstance(system, dict):
            self._document["systemReserved"] = {**system, "cpu": str(count)}
            self._origins["systemReserved.cpu"] = self._origins["reservedSystemCPUs"]


def _is_no_number(field: str, value: Any) -> bool:
    """Tell whether *value* means the default of *field*, as 0 pods and -5 processes do."""
    if not isinstance(value, int | float):
        return False
    return (field == "maxPods" and value == 0) or (field == "podPidsLimit" and value < 0)


def _spelled_again(document: Document) -> Iterator[tuple[str, str]]:
    """Yield each key beside the same one in another case, where that comes later."""
    spellings: dict[str, list[str]] = {}
    for key in sorted(document):
        spellings.setdefault(key.lower(), []).append(key)
    for same in spellings.values():
        yield from pairwise(same)


def _is_beside(before: Any, value: Any) -> bool:
    """Tell whether nothing of the map *before* is lost to the map *value*."""
    both = isinstance(before, dict) and isinstance(value, dict)
    return both and not before.keys() & value.keys()


def _recased(value: Any, known: Keys) -> Any:
    """Return *value* with the keys of the objects in it in their own case, and no unknown ones."""
    if isinstance(value, list):
        return [_recased(item, known) for item in value]
    if not isinstance(value, dict) or not known:
        return value
    named = ((spelled(key, known, any_case=True), value[key]) for key in sorted(value))
    return {name: inner for name, inner in named if name is not None}


def _recased_leaf(leaf: str, key: str, field: str) -> str:
    """Return the path *leaf*, which begins with *key*, in the case of *field*."""
    inner = leaf[len(key) + 1 :]
    name = spelled(inner, KEYS[field], any_case=True) or inner
    return f"{field}.{name}" if inner else field


def _leaves(document: Document) -> Iterator[str]:
    """Yield the path of each field; of a map, that of each entry."""
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
