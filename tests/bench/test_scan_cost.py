"""The counts that `docs/internals/figures.md` promises; never times."""

from pathlib import Path

import pytest

from tests.bench.scan_cost import NODES, PLUGIN_CALLS, costs
from tests.budget import IS_NIGHTLY

OF_EACH_KIND = (
    "a100x4-pcie-bridged-2numa",
    "gb300x2-station-1grace-datadirect",
    "h100x8-nvswitch-2numa-broken",
    "h100x8-nvswitch-2numa-mig",
    "l4x1-1numa",
    "v100x4-power9-sparse-6mlx5",
)
MACHINES = sorted(path.name for path in NODES.iterdir() if path.is_dir())


@pytest.mark.parametrize("shape", MACHINES if IS_NIGHTLY else OF_EACH_KIND)
def test_a_periodic_scan_asks_a_fraction_of_a_whole_one(
    shape: str, fake_nvml_library: Path, tmp_path: Path
) -> None:
    cost = costs(shape, fake_nvml_library, tmp_path)
    assert (cost.whole.is_whole, cost.periodic.is_whole) == (True, False)
    # A single card without NVLinks has the least that a whole scan could read besides.
    assert cost.periodic.nvml_calls * 2 <= cost.whole.nvml_calls
    assert cost.periodic.file_reads * 3 <= cost.whole.file_reads


def test_eight_linked_gpus_are_watched_for_a_tenth_of_the_calls(
    fake_nvml_library: Path, tmp_path: Path
) -> None:
    cost = costs("h100x8-nvswitch-2numa-8cx7", fake_nvml_library, tmp_path)
    assert cost.periodic.nvml_calls * 5 <= cost.whole.nvml_calls
    assert cost.periodic.file_reads * 6 <= cost.whole.file_reads
    assert cost.whole.nvml_calls * 2 < PLUGIN_CALLS
