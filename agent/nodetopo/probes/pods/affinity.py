"""Which pods required affinity and anti-affinity keep on one node, or off each other's node.

As the scheduler of kubernetes 1.36 matches them (pkg/scheduler/framework/types.go newAffinityTerm,
AffinityTerm.Matches; plugins/interpodaffinity): a term of either pod is enough. The API server
checks these fields; what it would refuse matches nothing here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from nodetopo.formats.fields import Object, dig, mappings, text
from nodetopo.probes.pods.added_labels import NOTHING_ADDED, AddedLabels

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


class Company(Struct, frozen=True, kw_only=True):
    """What decides whether a pod shares its node."""

    namespace: str
    # Those that are stated, and those that its controller is known to add.
    labels: Mapping[str, Any]
    terms: tuple[Object, ...]  # its required terms of anti-affinity whose topology is the node
    wishes: tuple[Object, ...] = ()  # its required terms of affinity whose topology is the node
    added: AddedLabels = NOTHING_ADDED  # what its controller adds

    def refuses(self, other: "Company") -> bool | None:
        """Return whether a term of this pod keeps *other* off its node.

        ``None`` if that depends on the value of a label that a controller adds.
        """
        found = {self.matches(term, other) for term in self.terms}
        return True if True in found else None if None in found else False

    def matches(self, term: Object, other: "Company") -> bool | None:
        """Return whether *term* of this pod selects *other*; ``None`` as :meth:`refuses`."""
        return self.selection(term).takes(other)

    def selection(self, term: Object) -> "Selection":
        """Return what *term* of this pod selects."""
        named, selector = term.get("namespaces"), term.get("labelSelector")
        namespaces = named if isinstance(named, list) and named else []
        chosen = term.get("namespaceSelector")
        if not namespaces and chosen is None:
            namespaces = [self.namespace]
        if not isinstance(selector, Mapping):  # none chooses no pod
            return Selection(namespaces=[], has_all_namespaces=False, wanted=())
        same = [(key, "In") for key in _texts(term, "matchLabelKeys")]
        same += [(key, "NotIn") for key in _texts(term, "mismatchLabelKeys")]
        expected = dig(selector, "matchLabels")
        wanted = [
            *((key, "In", [value]) for key, value in _entries(expected)),
            *(
                (str(it.get("key")), it.get("operator"), it.get("values"))
                for it in mappings(selector, "matchExpressions")
            ),
            *((key, how, [self.labels[key]]) for key, how in same if key in self.labels),
        ]
        # An empty selector chooses all namespaces; what another one chooses is not known here.
        return Selection(
            namespaces=namespaces, has_all_namespaces=chosen == {}, wanted=tuple(wanted)
        )


class Selection(Struct, frozen=True, kw_only=True):
    """The pods that a term selects."""

    namespaces: list[Any]
    has_all_namespaces: bool
    # Expressions on labels, all of which a pod must meet: key, operator, values.
    wanted: tuple[tuple[str, Any, Any], ...]

    def takes(self, other: Company) -> bool | None:
        """Return whether *other* is selected; ``None`` if that depends on an added label."""
        if other.namespace not in self.namespaces and not self.has_all_namespaces:
            return False
        is_open = False
        for key, how, values in self.wanted:
            if key not in other.labels and other.added.may_have(key):
                is_open = True
            elif not _holds(other.labels.get(key), how, values):
                return False
        return None if is_open else True


def company_of(
    namespace: str, metadata: Object, spec: Object, added: AddedLabels = NOTHING_ADDED
) -> Company:
    """Return what *metadata* and *spec* of a pod, or of a template, say; *namespace* is its own."""
    return Company(
        namespace=namespace,
        labels={**dict(_entries(metadata.get("labels"))), **added.known},
        terms=_required(spec, "podAntiAffinity"),
        wishes=_required(spec, "podAffinity"),
        added=added,
    )


def _required(spec: Object, kind: str) -> tuple[Object, ...]:
    path = ("affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution")
    return tuple(it for it in mappings(spec, *path) if text(it, "topologyKey") == HOSTNAME)


def are_apart(one: Company, other: Company) -> bool | None:
    """Return whether a term of either keeps the two off one node; ``None`` if not known."""
    found = {one.refuses(other), other.refuses(one)}
    return True if True in found else None if None in found else False


def mates_of(at: int, companies: Sequence[Company]) -> tuple[tuple[int, ...], ...]:
    """Return for each required term of affinity the positions of the pods that it selects.

    A term that selects the pod itself is met by it (the scheduler's rule for the first of a group),
    and left out; so is one that selects no pod of *companies* for certain.
    """
    one = companies[at]
    found = [
        tuple(number for number, other in enumerate(companies) if selection.takes(other))
        for selection in map(one.selection, one.wishes)
    ]
    return tuple(numbers for numbers in found if numbers and at not in numbers)


_BY_CONTROLLER = "a label that it selects by is added by a controller"
_NOT_HERE = "no pod of the manifest matches it, and labels of running pods are not read"


def open_questions(companies: Sequence[Company], names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each pod whose required terms are not decided by the manifest."""
    adding = {other.added.keys: other.added for other in companies}.values()
    for one, name in zip(companies, names, strict=True):
        # Pods of one manifest can be many, and most terms select by stated labels alone.
        open_terms = [term for term in one.terms if _may_be_added(term, adding)]
        if any(None in _found(one, term, companies) for term in open_terms):
            what = "required anti-affinity keeps it off the node of other pods"
            yield f"{name}: whether {what} is not known: {_BY_CONTROLLER}"
        for wish in one.wishes:
            found = _found(one, wish, companies)
            if True not in found:
                why = _BY_CONTROLLER if None in found else _NOT_HERE
                what = "required affinity lets it run on this node"
                yield f"{name}: whether {what} is not known: {why}"


def _may_be_added(term: Object, adding: Iterable[AddedLabels]) -> bool:
    """Return whether *term* selects by a label that one of *adding* may add."""
    keys = {str(key) for key, _ in _entries(dig(term, "labelSelector", "matchLabels"))}
    keys |= {str(it.get("key")) for it in mappings(term, "labelSelector", "matchExpressions")}
    keys |= {*_texts(term, "matchLabelKeys"), *_texts(term, "mismatchLabelKeys")}
    return any(it.may_have(key) for it in adding for key in keys)


def _found(one: Company, term: Object, companies: Sequence[Company]) -> set[bool | None]:
    selection = one.selection(term)
    return {selection.takes(other) for other in companies}


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, Mapping) else ()


def _texts(term: Object, field: str) -> list[str]:
    value = term.get(field)
    return [it for it in value if isinstance(it, str)] if isinstance(value, list) else []


def _holds(value: Any, operator: Any, values: Any) -> bool:
    matches = _OPERATORS.get(operator) if isinstance(operator, str) else None
    return matches is not None and matches(value, values if isinstance(values, list) else [])
