"""Why these MIG devices or replicas were chosen, in sentences."""

from collections.abc import Sequence

from nodetopo.allocation.explain import MORE_IS_BETTER, Explanation, compared, counted, names
from nodetopo.allocation.masks import positions
from nodetopo.allocation.shared.counts import Pool
from nodetopo.allocation.shared.terms import Leaves, SharedScore


class SharedExplanation:
    """Explain the answers for one resource; *what* is the name of one of its devices."""

    def __init__(self, explanation: Explanation, leaves: Leaves, what: str) -> None:
        self.machine = explanation  # explains sets of whole GPUs
        self._leaves = leaves
        self._what = what

    def links(self, chosen: Sequence[int]) -> str:
        """Return what joins the GPUs at *chosen*; empty for one, and for MIG devices."""
        return "" if self._leaves.is_isolated else self.machine.links(chosen)

    def reasons(
        self,
        scores: Sequence[SharedScore],
        taken: Sequence[int],
        pool: Pool | None,
    ) -> tuple[str, ...]:
        """Return the sentences for the first of *scores*; the others are alternatives.

        *taken* are its devices by GPU. Without a *pool* it is not known what was in use.
        """
        ours, order = scores[0], self._leaves.order
        touched = tuple(gpu for gpu, count in enumerate(taken) if count)
        lines = [self._counts(taken, touched)]
        if pool is not None:
            lines.append(self._use(taken, touched, pool))
        if ours.gpus > 1 and self._leaves.is_isolated:
            lines.append("MIG instances do not reach other GPUs, so bandwidth does not count")
        elif ours.gpus > 1:
            lines.append(self.machine.bandwidth(ours))
        lines += [self.machine.places(touched), self.machine.hcas(touched, ours.rail_loss)]
        if pool is None:
            return tuple(line for line in lines if line)

        if len(scores) == 1:
            lines.append("no other set of GPUs is possible")
        else:
            theirs = scores[1]
            lost = theirs.lost_at(ours, order)
            is_better = False
            if lost not in (None, "order"):
                a, b = theirs.figure(lost) or 0, ours.figure(lost) or 0
                is_better = (a > b) == (lost in MORE_IS_BETTER)
            kind = "better is" if is_better else "next best"
            lines.append(f"{kind} {names(theirs.order)}: {compared(ours, theirs, order)}")

        left = [(gpu, pool.free[gpu] - taken[gpu]) for gpu in touched]
        parts = [f"{n} on {self.machine.names([gpu])}" for gpu, n in left if n]
        here = f"{', '.join(parts)} free" if parts else "nothing free on the GPUs it touches"
        idle = sum(not taken[gpu] for gpu in positions(pool.idle))
        having = sum(map(any, zip(pool.used, pool.free, strict=True)))
        others = counted(idle, "GPU")
        if having < len(pool.free):  # nothing is known of the use of the rest
            others = f"{idle} of the {counted(having, 'GPU')} with such devices"
        lines.append(f"leaves {here}, and {others} idle")
        return tuple(line for line in lines if line)

    def _counts(self, taken: Sequence[int], touched: Sequence[int]) -> str:
        """Return how many devices are taken from which GPUs."""
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
        before = f"in use before: {parts}"
        if others and used <= min(others):
            return f"{before}; no other GPU with room has fewer"
        if others and used >= max(others) and len(busy) == len(touched) == 1:
            return f"{before}; no other GPU with room has more"
        return before
