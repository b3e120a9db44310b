"""NVLink inside a set of GPUs, and what the machine could give to a set of that size."""

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from agent.checks.alignment.record import NvlinkSpan
from agent.model.snapshot import Snapshot
from agent.topology.links import Pair, usable_nvlinks_between


class NvlinkSets:
    """Answers for the GPUs of one snapshot, named by index."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._links: Mapping[Pair, int | None] = usable_nvlinks_between(snapshot)
        self._usable = tuple(gpu.index for gpu in snapshot.gpus if not gpu.is_lost)

    @property
    def is_known(self) -> bool:
        """Whether the links of every pair are known."""
        return None not in self._links.values()

    @property
    def has_any(self) -> bool:
        """Whether any two GPUs are known to be joined."""
        return any(self._links.values())

    def span(self, gpus: Collection[int]) -> NvlinkSpan | None:
        """Return how many pairs of *gpus* have NVLink; ``None`` for fewer than two, or unknown."""
        counts = [self._links[pair] for pair in combinations(sorted(gpus), 2)]
        if not counts or None in counts:
            return None
        if all(counts):
            return NvlinkSpan.ALL
        return NvlinkSpan.SOME if any(counts) else NvlinkSpan.NONE

    def groups(self, gpus: Collection[int]) -> int:
        """Return into how many groups without NVLink between them *gpus* fall."""
        return len(self._sizes(gpus))

    def fewest(self, size: int, among: Iterable[int] | None = None) -> int:
        """Return the fewest such groups that *size* GPUs *among* these, or all, can have."""
        left, groups = size, 0
        for count in self._sizes(self._usable if among is None else among):
            if left <= 0:
                break
            left -= count
            groups += 1
        return groups + max(left, 0)

    def _sizes(self, gpus: Iterable[int]) -> list[int]:
        """Return the sizes of the groups, largest first."""
        group = {gpu: {gpu} for gpu in gpus}
        for a, b in combinations(sorted(group), 2):
            if self._links.get((a, b)) and group[a] is not group[b]:
                group[a] |= group[b]
                group.update(dict.fromkeys(group[a], group[a]))
        unique = {min(members): len(members) for members in group.values()}
        return sorted(unique.values(), reverse=True)
