"""Results that stand as long as what they were computed from."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from agent.probes.sysfs.tree import Key, Outcome, Tree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept:
    inputs: object
    result: Any
    watches: tuple[Mapping[Key, Outcome], ...]


class Memo:
    """Remembers what functions of *trees* returned, with all that they read there.

    A function is called again when one of its reads has another outcome than it had: so its
    result is always that of a call now, as far as the trees read again.
    """

    def __init__(self, *trees: Tree) -> None:
        self._trees = trees
        self._kept: dict[str, _Kept] = {}

    def part(self, name: str, inputs: object, read: Callable[[], T]) -> T:
        """Return ``read()``, from memory where neither *inputs* nor its reads differ."""
        kept = self._kept.get(name)
        if kept is not None and kept.inputs == inputs and not self._differs(kept):
            result: T = kept.result
            return result
        with ExitStack() as stack:
            watches = tuple(stack.enter_context(tree.watched()) for tree in self._trees)
            result = read()
        self._kept[name] = _Kept(inputs, result, watches)
        return result

    def _differs(self, kept: _Kept) -> bool:
        pairs = zip(self._trees, kept.watches, strict=True)
        return any(tree.differs(watch) for tree, watch in pairs)
