"""The fragmentation term: what the remaining GPUs are worth to the next jobs."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import comb, gcd
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.facts import UNKNOWN, Facts, Place
from nodetopo.allocation.families import (
    Families,
    Family,
    Slices,
    added,
    among,
    constant,
    doubled,
    greatest,
    highest,
    least,
    most,
    multiplied,
    sets_of,
    subtracted,
    total,
    value,
)
from nodetopo.allocation.masks import positions

JOB_WEIGHTS: Mapping[int, int] = MappingProxyType({2: 1, 4: 2, 8: 3})
"""Sizes of later jobs and their weights. Multi-GPU jobs of one node have these sizes in the
public Philly, Helios and PAI traces; the weights were chosen beforehand and never tuned."""

JOBS_A_STEP = 4
"""Jobs that are added one by one, each to half of the sets at most, in the time of adding one kind
of job to all sets."""


class Packing:
    """The remainder term of one machine of at most 16 GPUs, for all that can remain at once.

    The jobs of a packing have one size and are disjoint; its value is the sum of
    :func:`nodetopo.allocation.score.set_value` over its jobs. Any job is worth at least the least
    of all, so the packings of one size are as many jobs of the least worth as fit, and a packing
    of what some jobs are worth above it. Such jobs lie within parts of the machine. Where all
    jobs within a part are worth more, the same holds within the part. What is left are parts
    with jobs of the least worth besides others; only there the best packing is searched for.

    Safe to share between threads: at worst two threads compute the same values.
    """

    def __init__(
        self, families: Families, values: Callable[[int], Slices], classes: Sequence[int]
    ) -> None:
        """Take the *values* of all jobs of a size, 0.01 GB/s; other sets' do not matter.

        *classes* are for each GPU the mask of equal ones, see :class:`Symmetry`.
        """
        self._families = families
        self._values = values
        self._classes = classes

    @cached_property
    def taken(self) -> Slices:
        """The weighted sum over job sizes of the best packing of the GPUs that are not in a set.

        It is indexed by the GPUs in use, not the remaining ones: the remainder depends on the set
        and on earlier sets, and their union is the union of their masks.
        """
        jobs = ((job, weight) for job, weight in JOB_WEIGHTS.items() if job <= self._families.count)
        return total(multiplied(self._packed(job), weight) for job, weight in jobs)

    def remainder_value(self, remainder: int) -> int:
        """Return the weighted sum over job sizes of the best packing of *remainder*, 0.01 GB/s."""
        return value(self.taken, self._families.everyone ^ remainder)

    def _packed(self, job: int) -> Slices:
        """Return the value of the best packing with jobs of *job* GPUs."""
        families = self._families
        jobs, values = families.sizes[job], self._values(job)
        unit, rest = int(job == max(JOB_WEIGHTS)), jobs
        while rest and unit != 1:
            alike = least(rest, values)
            unit = gcd(unit, value(values, highest(alike)))
            rest ^= alike
        found = self._above(_Jobs(job, families.everyone, jobs, values), 0, unit or 1)
        return multiplied(found, unit)

    def _above(self, jobs: "_Jobs", known: int, unit: int) -> Slices:
        """Return what the best packing is worth above *known* a job, in *unit*.

        All jobs within the GPUs are worth more than *known*.
        """
        families = self._families
        worst = least(jobs.family, jobs.values)
        worth = value(jobs.values, highest(worst))
        # As many jobs as fit: the size is a power of two, and to shift is to divide by it.
        fit = families.lacking(jobs.members)[jobs.size.bit_length() - 1 :]
        better = jobs.family ^ worst
        inner = (jobs.within(part, better & families.within(part)) for part in self._parts(better))
        return total(
            [multiplied(fit, (worth - known) // unit), *(self._part(p, worth, unit) for p in inner)]
        )

    def _part(self, jobs: "_Jobs", known: int, unit: int) -> Slices:
        """Return the same without jobs that are worth at most *known*."""
        if jobs.are_all:
            return self._above(jobs, known, unit)
        if jobs.size == max(JOB_WEIGHTS):
            return self._one_or_both(jobs, known)
        if jobs.size == min(JOB_WEIGHTS):
            return self._one_by_one(jobs, known, unit)
        groups = list(self._groups(jobs))
        mixed = jobs.family
        for group in groups:
            mixed ^= group.family
        levels = {
            worth: dict.fromkeys(map(self._kinds, sets))
            for worth, sets in _levels(mixed, jobs.values, known, unit)
        }
        steps = sum(self._most(kinds) for each in levels.values() for kinds in each)
        if steps * JOBS_A_STEP > jobs.family.bit_count():
            return self._one_by_one(jobs, known, unit)
        # Each kind of job is added to the packings without it, as often as it can be.
        result = total(self._above(group, known, unit) for group in groups)
        for worth, each in levels.items():
            for kinds in each:
                for _ in range(self._most(kinds)):
                    rest, fitting = self._without(result, kinds)
                    result = greatest(result, added(rest, constant(fitting, worth)))
        return result

    def _one_by_one(self, jobs: "_Jobs", known: int, unit: int) -> Slices:
        """Return the same from each of *jobs*, GPU by GPU.

        A packing has one job with its highest GPU, or none, and the rest is packed without that
        GPU. So the sets of the first GPUs are known when the next one doubles them.
        """
        families = self._families
        by_highest: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for worth, sets in _levels(jobs.family, jobs.values, known, unit):
            for job in sets:
                top = job.bit_length() - 1
                by_highest[top][worth].append(job ^ 1 << top)
        result: Slices = []
        for gpu in range(families.count):
            width = 1 << gpu
            every = (1 << width) - 1
            lacks = [family & every for family in families.lacks[:gpu]]
            remains = result
            for worth, others in by_highest[gpu].items():
                rest: Slices = []
                fitting = 0
                for other in others:
                    able = every
                    for each in positions(other):
                        able &= lacks[each]
                    fitting |= able
                    rest = greatest(rest, [one >> other & able for one in result])
                remains = greatest(remains, added(rest, constant(fitting, worth)))
            result = doubled(remains, result, width)
        return result

    def _groups(self, jobs: "_Jobs") -> Iterator["_Jobs"]:
        """Yield disjoint groups of GPUs, within each of which all jobs are among *jobs*.

        The GPUs with the fewest jobs leave a group first. GPUs that are alike stay together.
        """
        families, left = self._families, jobs.members
        while left.bit_count() >= jobs.size:
            group = jobs.within(left, jobs.family & families.within(left))
            while not group.are_all:
                classes = {self._classes[gpu]: gpu for gpu in positions(group.members)}
                family = group.family
                fewest = min(
                    classes, key=lambda own: (family & families.has[classes[own]]).bit_count()
                )
                members = group.members & ~fewest
                group = jobs.within(members, family & families.within(members))
            if group.members.bit_count() < jobs.size:
                return
            yield group
            left &= ~group.members

    def _kinds(self, job: int) -> tuple[int, ...]:
        """Return the class of each GPU of *job*, as masks."""
        return tuple(sorted(self._classes[gpu] for gpu in positions(job)))

    def _most(self, kinds: tuple[int, ...]) -> int:
        """Return how many disjoint jobs with GPUs of *kinds* there are at most."""
        return min(kind.bit_count() // kinds.count(kind) for kind in kinds)

    def _without(self, slices: Slices, kinds: tuple[int, ...]) -> tuple[Slices, Family]:
        """Return the integers without a GPU of each of *kinds*, and for which sets there are such.

        Which GPU of a class is left out makes no difference to the integer.
        """
        families = self._families
        alone = sum(kind for kind in kinds if not kind & (kind - 1))
        around = families.around(alone)
        both = [one >> alone for one in among(around, [*slices, families.every])]
        for kind in kinds:
            if kind & alone:
                continue
            less = [0] * len(both)
            for gpu in positions(kind):
                for place, one in enumerate(among(families.has[gpu], both)):
                    less[place] |= one >> (1 << gpu)
            both = less
        return both[:-1], both[-1]

    def _parts(self, jobs: Family) -> list[int]:
        """Return the parts of the machine, as masks, that hold all *jobs* and share no GPU."""
        families = self._families
        parts: list[int] = []
        for gpu in range(families.count):
            own = jobs & families.has[gpu]
            if not own:
                continue
            near = sum(1 << other for other in range(families.count) if own & families.has[other])
            apart = [part for part in parts if not part & near]
            parts = [*apart, near | sum(part for part in parts if part & near)]
        return parts

    def _one_or_both(self, jobs: "_Jobs", known: int) -> Slices:
        """Return the same for jobs of which only one fits, or two that take all GPUs."""
        families = self._families
        worth = subtracted(among(jobs.family, jobs.values), constant(jobs.family, known))
        result = [families.complement(one) for one in worth]
        both = added(worth, result) if 2 * max(JOB_WEIGHTS) == families.count else []
        for gpu in range(families.count):
            has = families.has[gpu]
            result = greatest(result, [one >> (1 << gpu) for one in among(has, result)])
        if not both:
            return result
        largest = value(both, highest(most(families.sizes[max(JOB_WEIGHTS)], both)))
        return greatest(result, constant(1, largest))


class _Jobs(Struct, frozen=True):
    """Jobs of *size* GPUs within *members*, with the values of all jobs, 0.01 GB/s."""

    size: int
    members: int
    family: Family
    values: Slices

    def within(self, members: int, family: Family) -> "_Jobs":
        """Return other jobs of the size."""
        return replace(self, members=members, family=family)

    @property
    def are_all(self) -> bool:
        """Whether these are all possible jobs within the GPUs."""
        return self.family.bit_count() == comb(self.members.bit_count(), self.size)


class Symmetry:
    """Classes of interchangeable GPUs, so that only one of all equivalent sets is computed.

    GPUs of a class have the same links to all others and are on one NUMA node and socket, so
    exchanging them changes neither the bandwidth nor the span of a set. HCAs and partitions are
    not considered; they can differ within a class.
    """

    def __init__(self, facts: Facts, *, is_known: bool = True) -> None:
        """Find the classes; without *is_known* (sets were measured) each GPU is its own class."""

        def are_alike(a: int, b: int) -> bool:
            return (
                _is_same_place(facts.numa[a], facts.numa[b])
                and _is_same_place(facts.sockets[a], facts.sockets[b])
                and all(
                    square[a][other] == square[b][other]
                    for square in (facts.links, facts.rates, facts.hops)
                    for other in range(len(facts.indices))
                    if other not in (a, b)
                )
            )

        remaining = list(range(len(facts.indices)))
        classes = []
        while remaining:
            first, *others = remaining
            alike = [first, *(o for o in others if is_known and are_alike(first, o))]
            remaining = [other for other in others if other not in alike]
            classes.append(alike)
        # Of each GPU, as a mask.
        self.classes = tuple(
            sum(1 << member for alike in classes if gpu in alike for member in alike)
            for gpu in range(len(facts.indices))
        )
        self._lowest = tuple(
            tuple(sum(1 << member for member in alike[:count]) for count in range(len(alike) + 1))
            for alike in classes
            if len(alike) > 1
        )
        self._alone = sum(1 << alike[0] for alike in classes if len(alike) == 1)

    def canonical(self, mask: int) -> int:
        """Return the lowest of all masks that are equivalent to *mask*."""
        result = mask & self._alone
        for lowest in self._lowest:
            result |= lowest[(mask & lowest[-1]).bit_count()]
        return result


def _levels(
    family: Family, values: Slices, known: int, unit: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield what jobs of *family* are worth above *known*, in *unit*, and the jobs; least first."""
    while family:
        alike = least(family, values)
        yield (value(values, highest(alike)) - known) // unit, sets_of(alike)
        family ^= alike


def _is_same_place(a: Place, b: Place) -> bool:
    return a == b or a[0] == b[0] == UNKNOWN
