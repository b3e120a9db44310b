"""Reads the log of a bandwidth test, whichever tool wrote it."""

from nodetopo.errors import InputError
from nodetopo.formats import signatures
from nodetopo.tools.bandwidth import nccl_tests, nvbandwidth, p2p_test, perftest
from nodetopo.tools.bandwidth.log import Log

_READERS = {
    signatures.NCCL_TESTS: nccl_tests.read,
    signatures.NVBANDWIDTH: nvbandwidth.read,
    signatures.P2P_TEST: p2p_test.read,
    signatures.PERFTEST: perftest.read,
}


def read(text: str) -> Log:
    """Return the log in *text*.

    Raises:
        InputError: no tool is recognised, or the log holds too much.
    """
    form = signatures.log_form(text)
    if form is None:
        cause = "not a log of a bandwidth test" if text.strip() else "an empty log"
        raise InputError(cause, signatures.LOGS)
    return _READERS[form](text)
