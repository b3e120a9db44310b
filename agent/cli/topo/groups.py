"""Devices that are near to each other, where only their distances are known."""

from collections.abc import Iterable, Mapping, Sequence

from agent.model.nvlink import Closeness
from agent.topology.matrix import word

_LEVELS = (Closeness.PHB, Closeness.PXB, Closeness.PIX)
"""The distances inside one host bridge, widest first: each group lies inside one of the last."""


def groups(
    names: Sequence[str],
    closeness: Mapping[frozenset[str], Closeness],
) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return for each row name its groups, outermost first, as (word, first member).

    A group is a chain of devices each at most that far from the next. Groups of one, and
    groups that hold nothing but a nearer one, are left out.
    """
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {name: [] for name in names}
    for level in _LEVELS:
        for members in _chains(names, closeness, level):
            for name in members:
                above = found[name]
                if above and above[-1][1] == members:
                    above.pop()
                if len(members) > 1:
                    above.append((word(level), members))
    return {
        name: tuple((word_, members[0]) for word_, members in chain)
        for name, chain in found.items()
    }


def _chains(
    names: Iterable[str],
    closeness: Mapping[frozenset[str], Closeness],
    level: Closeness,
) -> list[tuple[str, ...]]:
    chains: list[tuple[str, ...]] = []
    for name in names:
        near = [
            chain
            for chain in chains
            if any(
                closeness.get(frozenset((name, other)), Closeness.SYS) <= level for other in chain
            )
        ]
        chains = [chain for chain in chains if chain not in near]
        chains.append((*(member for chain in near for member in chain), name))
    return chains
