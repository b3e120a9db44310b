"""What the child itself keeps from scan to scan: nothing. A driver's library may keep more."""

import ctypes
import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nodetopo.probes.nvml.child import _Reader
from nodetopo.probes.nvml.events import EventListener
from tests.budget import cases
from tests.fake_nvml.build import NAME
from tests.fake_nvml.fake import FakeNvml


@pytest.fixture
def output() -> Iterator[tuple[int, int]]:
    """A pipe for events that does not block."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(("request_line", "times"), [("refresh", 2000), ("scan", 40)])
def test_scans_keep_no_memory(
    nvml_fake: FakeNvml,
    nvml_library: Path,
    output: tuple[int, int],
    request_line: str,
    times: int,
) -> None:
    assert nvml_fake.directory.exists()
    ctypes.CDLL(str(nvml_library / NAME))
    listener = EventListener(output[1])
    reader = _Reader(None, listener)

    def scan(times: int) -> int:
        """Scan as the child does, with an event each time; return what is allocated then."""
        for _ in range(times):
            nvml_fake.xid(0, 31)
            assert json.dumps(reader.answer(request_line)).startswith('{"ok": ')
            with suppress(BlockingIOError):
                os.read(output[0], 1 << 16)
        gc.collect()
        return sys.getallocatedblocks()

    before = scan(20)
    after = scan(cases(times, 10 * times))
    listener.close()
    assert after - before < times / 4  # one block kept by each scan would be four times as many
