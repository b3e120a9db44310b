"""A good set of a machine that is too large and too irregular to look at every set."""

from agent.allocation.masks import positions
from agent.allocation.terms import Terms
from agent.allocation.tree import Node
from agent.allocation.tree_engine import TreeEngine

TRIED = 8
"""The best sets of the tree that are judged as the machine is; each takes up to a few ms."""


class NearestEngine:
    """Take the best sets of the tree that is most like the machine, and judge them as they are.

    It may miss the best set, and says so.
    """

    name = "tree"
    is_exact = False

    def __init__(self, terms: Terms, root: Node) -> None:
        self._tree = TreeEngine(terms, root)
        self._figures = [terms.figure(name) for name in terms.order if name != "order"]

    def prepare(self) -> None:
        """Do nothing: nothing is worked out beforehand."""

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set that was found."""
        return self.ranked(free=free, required=required, size=size, count=1)[0]

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the best sets that were found, best first."""
        tried = self._tree.ranked(free=free, required=required, size=size, count=max(count, TRIED))
        return sorted(tried, key=lambda mask: self._key(mask, free))[:count]

    def _key(self, mask: int, free: int) -> tuple[list[int], tuple[int, ...]]:
        return [figure(mask, free) for figure in self._figures], positions(mask)
