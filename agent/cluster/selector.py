"""Which labels a person asks for, in the equality-based syntax of ``kubectl -l``."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.cluster.node import ClusterNode
from agent.errors import InputError

_TERM = re.compile(
    r"(?P<negated>!)?(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
    r"(?:\s*(?P<operator>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term.

    Attributes:
        value: what the label has to be; ``None`` where any value will do.
        is_negated: whether the label must not be so; a node without the label is not so
            either, as with ``kubectl``.
    """

    key: str
    value: str | None
    is_negated: bool

    def __str__(self) -> str:
        if self.value is None:
            return f"{'!' if self.is_negated else ''}{self.key}"
        return f"{self.key}{'!=' if self.is_negated else '='}{self.value}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether *labels* meet the term."""
        is_so = self.key in labels if self.value is None else labels.get(self.key) == self.value
        return is_so is not self.is_negated


@dataclass(frozen=True, slots=True)
class Selector:
    """Terms that all have to hold; ``str()`` is the API's ``labelSelector``."""

    requirements: tuple[Requirement, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def select(self, nodes: Iterable[ClusterNode]) -> tuple[ClusterNode, ...]:
        """Return those of *nodes* whose labels meet all terms, in their order."""
        return tuple(
            node for node in nodes if all(one.matches(node.labels) for one in self.requirements)
        )


def selector(text: str) -> Selector:
    """Return what *text* asks for: ``k=v``, ``k!=v``, ``k``, ``!k``, joined by commas.

    Raises:
        InputError: it is none of these.
    """
    terms = (term.strip() for term in text.split(","))
    return Selector(tuple(_requirement(term) for term in terms if term))


def _requirement(term: str) -> Requirement:
    found = _TERM.fullmatch(term)
    if found is None or (found["negated"] and found["operator"]):
        cure = "terms are KEY=VALUE, KEY!=VALUE, KEY and !KEY, joined by commas"
        raise InputError(f"not a selector: {term!r}", cure)
    is_negated = bool(found["negated"]) or found["operator"] == "!="
    return Requirement(key=found["key"], value=found["value"], is_negated=is_negated)
