"""A consumer of topologies: what it takes, and what makes it."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.cluster.export.record import Exported, ExportOptions
from agent.cluster.levels import Choice
from agent.cluster.places import places
from agent.errors import InputError
from agent.labels.levels_platform import REGION, ZONE

MAX_KEY = 316
"""Characters of a label key (maxLength of nodeLabel in the CRDs of KAI v0.17 and Kueue v0.19.2)."""


def always(_options: ExportOptions) -> bool:
    """Return true."""
    return True


def never(_options: ExportOptions) -> bool:
    """Return false."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One consumer.

    Attributes:
        name: what ``--for`` calls it.
        build: makes its objects; remarks in its answer are its own alone.
        max_key: characters that the key of a level may have.
        joins_by_dots: whether it names a place by its values joined with dots.
        merges: whether it takes a value for the same place wherever it meets it.
    """

    name: str
    build: Callable[[Choice, ExportOptions], Exported]
    max_key: int = MAX_KEY
    joins_by_dots: bool = False
    merges: Callable[[ExportOptions], bool] = never


def group_key(choice: Choice) -> str:
    """Return the level that keeps a group together: the narrowest that joins nodes.

    Where none does, as NVLink on machines of its own, the narrowest above the single node; a
    region or a zone is taken only if there is nothing else.

    Raises:
        InputError: there is none.
    """
    narrow = narrowest(choice)
    close = tuple(key for key in choice.broad if key not in {REGION, ZONE})
    return next((key for key in reversed(close) if choice.joins(key)), narrow)


def narrowest(choice: Choice) -> str:
    """Return the narrowest level above the single node.

    Raises:
        InputError: there is none.
    """
    if not choice.broad:
        cure = "label the nodes, narrow them with --selector, or name keys with --levels"
        raise InputError("no level above the single node", cure)
    return choice.broad[-1]


def group_size(choice: Choice, options: ExportOptions) -> int:
    """Return the pods of a group: as asked for, or one for each node of the largest place."""
    if options.size is not None:
        return options.size
    return max(len(place.nodes) for place in places(choice.nodes, (group_key(choice),)))
