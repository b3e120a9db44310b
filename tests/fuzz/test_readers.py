"""Every reader, in processes with limits, on documents that are drawn, kept, or made to harm."""

import os
import subprocess
import sys

import pytest

from nodetopo.model.limits import MAX_GPUS, MAX_HCAS
from tests.budget import IS_NIGHTLY, cases
from tests.fuzz.batch import CORPUS
from tests.fuzz.hostile import ACCEPTED, HOSTILE, LARGEST
from tests.fuzz.readers import LONGEST_LINE, READERS, OracleError, check_line
from tests.fuzz.seeds import seeds

PARTS = 4
"""Processes among which the readers are divided: to start one takes a second."""


def batch(*arguments: str) -> None:
    """Run a batch, and hold that it ended well."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.batch", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["agent", "."])},
        timeout=7200 if IS_NIGHTLY else 240,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]


@pytest.mark.timeout(7200 if IS_NIGHTLY else 300)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_drawn_document_is_read_or_refused(part: int) -> None:
    start = [str(int.from_bytes(os.urandom(4)))] if IS_NIGHTLY else []
    batch("drawn", ",".join([*READERS][part::PARTS]), str(cases(16, 3000)), *start)


def test_a_document_that_once_failed_is_read_or_refused() -> None:
    batch("kept", ",".join(sorted(path.name for path in CORPUS.iterdir())))


@pytest.mark.parametrize("part", range(2))
def test_a_document_beyond_a_limit_is_refused(part: int) -> None:
    batch("hostile", ",".join([*HOSTILE][part::2]))


def test_a_document_within_the_limits_is_read() -> None:
    batch("accepted", ",".join(ACCEPTED))
    if IS_NIGHTLY:  # it takes minutes
        batch("largest", ",".join(LARGEST))


@pytest.mark.parametrize("reader", READERS)
def test_the_documents_that_others_are_drawn_from_are_sound(reader: str) -> None:
    assert any(READERS[reader](text) for text in seeds(reader))


def test_the_oracle_fails_for_a_line_that_is_too_long_and_for_two_lines() -> None:
    check_line("x" * LONGEST_LINE)
    for line in ("x" * (LONGEST_LINE + 1), "a\nb"):
        with pytest.raises(OracleError):
            check_line(line)


def test_a_batch_ends_a_reader_that_takes_too_long_or_too_much() -> None:
    for harm in ("while True: pass", "bytearray(1 << 40)", "raise KeyError('x')"):
        with pytest.raises(AssertionError, match=r"OracleError|MemoryError|KeyError"):
            batch("broken", harm)


def test_the_limits_are_those_that_are_documented() -> None:
    assert (MAX_GPUS, MAX_HCAS) == (256, 1024)
