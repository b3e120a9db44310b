"""Which pods required anti-affinity keeps off each other's node.

As the scheduler of kubernetes 1.36 matches them (pkg/scheduler/framework/types.go newAffinityTerm,
AffinityTerm.Matches; plugins/interpodaffinity): a term of either pod is enough. The API server
checks these fields; what it would refuse matches nothing here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nodetopo.formats.fields import Object, dig, mappings, text

HOSTNAME = "kubernetes.io/hostname"
"""The topology key of single nodes."""

_OPERATORS: Mapping[str, Callable[[str | None, list[Any]], bool]] = MappingProxyType(
    {
        "In": lambda value, values: value is not None and value in values,
        "NotIn": lambda value, values: value is None or value not in values,
        "Exists": lambda value, _: value is not None,
        "DoesNotExist": lambda value, _: value is None,
    }
)
"""Of expressions of a label selector (apimachinery pkg/labels, Requirement.Matches)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """What decides whether a pod shares its node.

    Attributes:
        labels: those that are stated; a controller may add others.
        terms: its required terms of anti-affinity whose topology is the node.
    """

    namespace: str
    labels: Mapping[str, Any]
    terms: tuple[Object, ...]

    def refuses(self, other: "Company") -> bool:
        """Return whether a term of this pod keeps *other* off its node."""
        return any(self._matches(term, other) for term in self.terms)

    def _matches(self, term: Object, other: "Company") -> bool:
        named, selector = term.get("namespaces"), term.get("labelSelector")
        namespaces = named if isinstance(named, list) and named else []
        chosen = term.get("namespaceSelector")
        if not namespaces and chosen is None:
            namespaces = [self.namespace]
        # An empty selector chooses all namespaces; what another one chooses is not known here.
        if other.namespace not in namespaces and chosen != {}:
            return False
        if not isinstance(selector, Mapping):  # none chooses no pod
            return False
        same = [(key, "In") for key in _texts(term, "matchLabelKeys")]
        same += [(key, "NotIn") for key in _texts(term, "mismatchLabelKeys")]
        expected = dig(selector, "matchLabels")
        wanted = [
            *((key, "In", [value]) for key, value in _entries(expected)),
            *(
                (it.get("key"), it.get("operator"), it.get("values"))
                for it in mappings(selector, "matchExpressions")
            ),
            *((key, how, [self.labels[key]]) for key, how in same if key in self.labels),
        ]
        return all(_holds(other.labels.get(str(key)), how, values) for key, how, values in wanted)


def company_of(namespace: str, metadata: Object, spec: Object) -> Company:
    """Return what *metadata* and *spec* of a pod, or of a template, say; *namespace* is its own."""
    path = ("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return Company(
        namespace=namespace,
        labels=dict(_entries(metadata.get("labels"))),
        terms=tuple(it for it in mappings(spec, *path) if text(it, "topologyKey") == HOSTNAME),
    )


def are_apart(one: Company, other: Company) -> bool:
    """Return whether a term of either keeps the two off one node."""
    return one.refuses(other) or other.refuses(one)


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, Mapping) else ()


def _texts(term: Object, field: str) -> list[str]:
    value = term.get(field)
    return [it for it in value if isinstance(it, str)] if isinstance(value, list) else []


def _holds(value: Any, operator: Any, values: Any) -> bool:
    matches = _OPERATORS.get(operator) if isinstance(operator, str) else None
    return matches is not None and matches(value, values if isinstance(values, list) else [])
