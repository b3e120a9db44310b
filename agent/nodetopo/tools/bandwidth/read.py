"""Reads the log of a bandwidth test, whichever tool wrote it."""

from collections.abc import Callable

from nodetopo.errors import InputError
from nodetopo.tools.bandwidth import nccl_tests, nvbandwidth, p2p_test, perftest
from nodetopo.tools.bandwidth.log import Log

READERS: tuple[tuple[Callable[[str], bool], Callable[[str], Log]], ...] = tuple(
    (tool.is_log, tool.read) for tool in (nccl_tests, nvbandwidth, p2p_test, perftest)
)
"""The first whose ``is_log`` recognises a log reads it."""


def read(text: str) -> Log:
    """Return the log in *text*.

    Raises:
        InputError: no tool is recognised, or the log holds too much.
    """
    for is_log, read_log in READERS:
        if is_log(text):
            return read_log(text)
    raise InputError(
        "not a log of a bandwidth test" if text.strip() else "an empty log",
        "give the output of nccl-tests, perftest (ib_write_bw …), nvbandwidth or "
        "p2pBandwidthLatencyTest",
    )
