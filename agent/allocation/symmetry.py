"""GPUs that are interchangeable, so that a set need be judged once for all like it."""

from agent.allocation.facts import UNKNOWN, Facts, Place


class Symmetry:
    """Classes of GPUs that see all others alike and sit on one NUMA node and socket.

    Exchanging two GPUs of a class changes neither bandwidth nor what a set spans. HCAs and
    partitions are left out: they may tell such GPUs apart.
    """

    def __init__(self, facts: Facts, *, is_known: bool = True) -> None:
        """Find the classes; without *is_known* (sets were measured) each GPU is one of its own."""
        remaining = list(range(len(facts.indices)))
        classes = []
        while remaining:
            first = remaining[0]
            alike = [
                o for o in remaining if o == first or (is_known and _are_alike(facts, first, o))
            ]
            remaining = [other for other in remaining if other not in alike]
            classes.append(alike)
        self._lowest = tuple(
            tuple(sum(1 << member for member in alike[:count]) for count in range(len(alike) + 1))
            for alike in classes
            if len(alike) > 1
        )
        self._alone = sum(1 << alike[0] for alike in classes if len(alike) == 1)

    def canonical(self, mask: int) -> int:
        """Return the lowest of all masks that symmetry makes equal to *mask*."""
        result = mask & self._alone
        for lowest in self._lowest:
            result |= lowest[(mask & lowest[-1]).bit_count()]
        return result


def _are_alike(facts: Facts, a: int, b: int) -> bool:
    others = [other for other in range(len(facts.indices)) if other not in (a, b)]
    return (
        _same_place(facts.numa[a], facts.numa[b])
        and _same_place(facts.sockets[a], facts.sockets[b])
        and all(
            square[a][other] == square[b][other]
            for square in (facts.links, facts.rates, facts.hops)
            for other in others
        )
    )


def _same_place(a: Place, b: Place) -> bool:
    return a == b or a[0] == b[0] == UNKNOWN
