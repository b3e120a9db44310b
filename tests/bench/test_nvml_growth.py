"""The table of the NVML process's memory: its lines, not its figures."""

from pathlib import Path

from tests.bench.nvml_growth import LINES, sizes, table
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import nvml_fake

__all__ = ["nvml_fake"]


def test_the_size_is_taken_evenly_and_of_the_process_that_reads(
    nvml_fake: FakeNvml,
    fake_nvml_library: Path,
) -> None:
    assert nvml_fake.directory.exists()
    found = list(sizes(2 * LINES, fake_nvml_library))
    assert [size.scans for size in found] == [2 * step for step in range(LINES + 1)]
    assert {size.replaced for size in found} == {0}
    assert all(size.resident > 1 << 20 for size in found)
    assert len(list(table(iter(found)))) == LINES + 2
