"""The operations of nccl-tests, and the algorithms that NCCL can run them by.

Facts: the programs of NVIDIA/nccl-tests ``src/``; ``NCCL_ALGO`` and ``NCCL_NVLS_ENABLE`` in NCCL's
page on environment variables; the messages of NVIDIA/nccl ``src/init.cc``, ``src/misc/param.cc``
and ``src/transport/nvls.cc``. NVLS, sums inside NVSwitches, came with NCCL 2.17.
"""

import re

from msgspec import Struct

from nodetopo.allocation.measured import Operation

RINGS = frozenset(
    {
        Operation.ALL_REDUCE,
        Operation.ALL_GATHER,
        Operation.REDUCE_SCATTER,
        Operation.BROADCAST,
        Operation.REDUCE,
    }
)
"""Those that NCCL runs in the rings that it finds best."""


def operation_of(test: str) -> Operation | None:
    """Return the operation that *test* measures; ``None`` for another tool's test or no name."""
    return next((operation for operation in Operation if operation == test), None)


def has_ratio(ratio: float, ranks: int) -> bool:
    """Return whether bus and algorithm bandwidth have *ratio* in any operation of *ranks* ranks."""
    of_all_reduce = 2 * (ranks - 1) / ranks
    return any(abs(ratio - one) < 0.02 for one in (of_all_reduce, of_all_reduce / 2, 1.0))


def by_ratio(ratio: float | None, ranks: int) -> Operation | None:
    """Return the operation with this *ratio* of bus to algorithm bandwidth (doc/PERFORMANCE.md).

    2(n−1)/n is an all_reduce; others share theirs.
    """
    if ratio is not None and ranks > 2 and abs(ratio - 2 * (ranks - 1) / ranks) < 0.02:
        return Operation.ALL_REDUCE
    return None


class Columns(Struct, frozen=True, kw_only=True):
    """What the columns of a run's table tell of its operation.

    Before 2.13 each operation had its own: ``redop`` for those that reduce, and, empty, for
    alltoall; ``root`` for those that have one. Since then all have both, ``none`` and -1 in them.
    """

    names: frozenset[str]
    reduces: bool  # a reduction is named
    is_rooted: bool  # a rank is named as the root
    is_checked_twice: bool  # data in place was checked, too, which alltoall and sendrecv cannot

    def operation(self, ratio: float | None, ranks: int) -> Operation | None:
        """Return the operation of *ranks* ranks; ``None`` if several have such columns.

        Args:
            ratio: of bus to algorithm bandwidth.
        """
        if (found := by_ratio(ratio, ranks)) is not None:
            return found if self.reduces else None
        # Of more ranks the share and the whole do not differ enough.
        if ratio is None or not 2 < ranks <= 16:
            return None
        is_share, is_whole = (abs(ratio - one) < 0.02 for one in ((ranks - 1) / ranks, 1.0))
        if self.is_rooted:
            of_root = Operation.REDUCE if self.reduces else Operation.BROADCAST
            return of_root if is_whole else None
        if not is_share:
            return None
        if self.reduces:
            return Operation.REDUCE_SCATTER
        is_all_gather = self.is_checked_twice or not self.names & {"redop", "root"}
        if is_all_gather:
            return Operation.ALL_GATHER
        return None if "root" in self.names else Operation.ALLTOALL


RING, NVLS = "ring", "nvls"

ALGORITHMS = frozenset({"tree", RING, "collnetdirect", "collnetchain", NVLS, "nvlstree", "pat"})
"""NCCL's names for them, in lower case."""

_SETTING = re.compile(
    r"\b(?P<name>NCCL_ALGO|NCCL_NVLS_ENABLE)(?:=| set by environment to |: )"
    r"[\"']?(?P<value>[A-Za-z0-9^][A-Za-z0-9^,;:_]{0,200})"
)
_NO_NVLS = re.compile(
    r"NVLS multicast support is not available|\b0 nvls channels\b|"
    r"\bNCCL version 2\.(?:1[0-6]|[0-9])\."
)
_HAS_NVLS = re.compile(r"NVLS multicast support is available|\b[1-9][0-9]? nvls channels\b")
_EXPORTED = re.compile(r"\bexport\s")


class Algorithms(Struct, frozen=True):
    """What a log says about the choice of algorithms."""

    algo: str | None = None  # value of NCCL_ALGO; None if the log does not show it
    has_no_nvls: bool = False  # the log shows that NVLS was off
    has_nvls: bool = False  # the log shows that it was on

    def after(self, line: str) -> "Algorithms":
        """Return what is known after *line*."""
        algo = self.algo
        has_no_nvls = self.has_no_nvls or bool(_NO_NVLS.search(line))
        for setting in _SETTING.finditer(line):
            if setting["name"] == "NCCL_ALGO":
                algo = setting["value"]
            else:
                has_no_nvls = has_no_nvls or setting["value"] == "0"
        has_nvls = self.has_nvls or bool(_HAS_NVLS.search(line))
        return Algorithms(algo, has_no_nvls, has_nvls and not has_no_nvls)

    def of(self, operation: Operation | None) -> frozenset[str]:
        """Return the algorithms that are left for *operation*.

        ``NCCL_ALGO`` is a list, or lists by operation between semicolons since 2.24, such as
        ``ring;allreduce:^nvls``; a circumflex excludes what the list names.
        """
        left = ALGORITHMS
        function = "" if operation is None else operation.removesuffix("_perf").replace("_", "")
        for entry in (self.algo or "").lower().split(";"):
            prefix, _, names = entry.rpartition(":")
            if not names or prefix not in ("", function):
                continue
            named = {name.strip() for name in names.removeprefix("^").split(",")}
            left = ALGORITHMS - named if names.startswith("^") else ALGORITHMS & named
        return left - {NVLS, "nvlstree"} if self.has_no_nvls else left


UNRESTRICTED = Algorithms()
"""Of a log that says nothing."""


class Reader:
    """Follows the settings through a log with several runs."""

    def __init__(self) -> None:
        self._exported = UNRESTRICTED
        self._next = UNRESTRICTED

    def read(self, line: str, current: Algorithms | None) -> Algorithms | None:
        """Return *current* of the run that *line* belongs to; ``None`` outside of a run.

        What NCCL prints belongs to the run that goes on; a command line, to the one that begins.
        """
        # Most lines of NCCL say nothing about algorithms, and words are found faster than patterns.
        if not ("NVLS" in line or "nvls" in line or "NCCL_ALGO" in line or "NCCL version" in line):
            return current
        is_report = "=" not in line or "NCCL INFO" in line
        if current is not None and is_report:
            return current.after(line)
        self._next = self._next.after(line)
        if _EXPORTED.search(line):
            self._exported = self._exported.after(line)
        return current

    def begin(self) -> Algorithms:
        """Return what the lines before a run said about it."""
        found, self._next = self._next, self._exported
        return found
