"""Spanning trees of a small multigraph that share no link."""

from collections.abc import Sequence

LARGEST_COUNTED = 10
"""Vertices up to which trees are counted; 10 have 115,975 partitions. Beyond, a connected
graph counts one tree."""


def disjoint_trees(links: Sequence[Sequence[int]]) -> int:
    """Return how many spanning trees fit into the multigraph *links* without sharing a link.

    That is the least, over all ways to part the vertices, of the links between parts divided
    by one less than the parts (Nash-Williams 1961, Tutte 1961). At least two vertices.
    """
    count = len(links)
    total = sum(map(sum, links)) // 2
    if count > LARGEST_COUNTED:
        return int(_is_connected(links))
    best = total
    parts: list[list[int]] = []

    def place(vertex: int, inside: int) -> None:
        nonlocal best
        if vertex == count:
            if len(parts) > 1:
                best = min(best, (total - inside) // (len(parts) - 1))
            return
        for part in parts:
            kept = sum(links[vertex][other] for other in part)
            part.append(vertex)
            place(vertex + 1, inside + kept)
            part.pop()
        parts.append([vertex])
        place(vertex + 1, inside)
        parts.pop()

    place(0, 0)
    return best


def _is_connected(links: Sequence[Sequence[int]]) -> bool:
    reached, frontier = {0}, [0]
    while frontier:
        row = links[frontier.pop()]
        new = [vertex for vertex, number in enumerate(row) if number and vertex not in reached]
        reached.update(new)
        frontier += new
    return len(reached) == len(links)
