"""Why these MIG instances or replicas, in sentences that a person can read aloud."""

from collections.abc import Sequence

from agent.allocation.explain import MORE_IS_BETTER, Explanation, compared, counted, names
from agent.allocation.masks import positions
from agent.allocation.shared.counts import Pool
from agent.allocation.shared.terms import Leaves, SharedScore


class SharedExplanation:
    """Explain the answers for one resource; *what* is what one of its devices is called.

    Attributes:
        machine: explains sets of the GPUs themselves.
    """

    def __init__(self, explanation: Explanation, leaves: Leaves, what: str) -> None:
        self.machine = explanation
        self._leaves = leaves
        self._what = what

    def links(self, chosen: Sequence[int]) -> str:
        """Return what joins the GPUs at *chosen*; empty for one, and for MIG instances."""
        return "" if self._leaves.is_isolated else self.machine.links(chosen)

    def reasons(
        self,
        scores: Sequence[SharedScore],
        taken: Sequence[int],
        pool: Pool | None,
    ) -> tuple[str, ...]:
        """Return the sentences for the first of *scores*; the others are sets beside it.

        *taken* are its devices by GPU. Without a *pool* nothing is said of what was in use.
        """
        touched = tuple(gpu for gpu, count in enumerate(taken) if count)
        lines = [
            self._counts(taken, touched),
            self._bandwidth(scores[0]),
            self.machine.places(touched),
            self.machine.hcas(touched, scores[0].rail_loss),
        ]
        if pool is not None:
            lines.insert(1, self._use(taken, touched, pool))
            lines += [self._against(scores), self._leaves_free(taken, pool)]
        return tuple(line for line in lines if line)

    def _counts(self, taken: Sequence[int], touched: Sequence[int]) -> str:
        total = counted(sum(taken), self._what)
        if len(touched) == 1:
            return f"{total} on {self.machine.names(touched)}"
        counts = {taken[gpu] for gpu in touched}
        if len(counts) == 1:
            each = "one" if counts == {1} else str(counts.pop())
            return f"{total}, {each} on each of {self.machine.names(touched)}"
        by_count = (
            (count, [gpu for gpu in touched if taken[gpu] == count])
            for count in sorted(counts, reverse=True)
        )
        parts = (
            f"{count} on {'each of ' if len(gpus) > 1 else ''}{self.machine.names(gpus)}"
            for count, gpus in by_count
        )
        return f"{total}: {'; '.join(parts)}"

    def _use(self, taken: Sequence[int], touched: Sequence[int], pool: Pool) -> str:
        """Return what was in use on the GPUs touched, and how that compares with the others."""
        used = max(pool.used[gpu] for gpu in touched)
        if not used:
            return f"nothing else is in use {'there' if len(touched) == 1 else 'on them'}"
        others = [pool.used[gpu] for gpu in positions(pool.open) if not taken[gpu]]
        busy = [gpu for gpu in touched if pool.used[gpu]]
        parts = ", ".join(f"{pool.used[gpu]} on {self.machine.names([gpu])}" for gpu in busy)
        said = f"in use before: {parts}"
        if others and used <= min(others):
            return f"{said}; no other GPU with room has fewer"
        if others and used >= max(others) and len(busy) == len(touched) == 1:
            return f"{said}; no other GPU with room has more"
        return said

    def _bandwidth(self, score: SharedScore) -> str:
        if score.gpus < 2:
            return ""
        if self._leaves.is_isolated:
            return "MIG instances do not reach other GPUs, so bandwidth does not count"
        return self.machine.bandwidth(score)

    def _against(self, scores: Sequence[SharedScore]) -> str:
        if len(scores) == 1:
            return "no other set of GPUs is possible"
        ours, theirs = scores[0], scores[1]
        lost = theirs.lost_at(ours, self._leaves.order)
        a, b = getattr(theirs, lost) or 0, getattr(ours, lost) or 0
        is_better = lost != "order" and (a > b) == (lost in MORE_IS_BETTER)
        kind = "better is" if is_better else "next best"
        return f"{kind} {names(theirs.order)}: {compared(ours, theirs, self._leaves.order)}"

    def _leaves_free(self, taken: Sequence[int], pool: Pool) -> str:
        left = [(gpu, pool.free[gpu] - taken[gpu]) for gpu in positions(pool.open)]
        parts = [f"{n} on {self.machine.names([gpu])}" for gpu, n in left if n and taken[gpu]]
        here = f"{', '.join(parts)} free" if parts else "nothing free on the GPUs it touches"
        idle = sum(not taken[gpu] for gpu in positions(pool.idle))
        return f"leaves {here}, and {counted(idle, 'GPU')} idle"
