"""One set of machines for all tests of the rules."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.rules.bases import Bases


@pytest.fixture(scope="session")
def bases(fake_nvml_library: Path) -> Iterator[Bases]:
    """Return the machines that the rules' own start from, in memory where there is room."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="nt-rules-", dir=memory) as home,
        closing(Bases(Path(home), fake_nvml_library)) as bases,
    ):
        yield bases
