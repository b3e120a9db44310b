"""The counts that `docs/internals/bench.md` promises; never times."""

from pathlib import Path

from tests.bench.scan_cost import PLUGIN_CALLS, costs


def test_a_periodic_scan_asks_a_fraction_of_a_whole_one(
    node_dir: Path, fake_nvml_library: Path, tmp_path: Path
) -> None:
    cost = costs(node_dir.name, fake_nvml_library, tmp_path)
    assert (cost.whole.is_whole, cost.periodic.is_whole) == (True, False)
    assert cost.periodic.nvml_calls * 3 <= cost.whole.nvml_calls
    assert cost.periodic.file_reads * 3 <= cost.whole.file_reads


def test_eight_linked_gpus_are_watched_for_a_tenth_of_the_calls(
    fake_nvml_library: Path, tmp_path: Path
) -> None:
    cost = costs("h100x8-nvswitch-2numa-8cx7", fake_nvml_library, tmp_path)
    assert cost.periodic.nvml_calls * 5 <= cost.whole.nvml_calls
    assert cost.periodic.file_reads * 6 <= cost.whole.file_reads
    assert cost.whole.nvml_calls * 2 < PLUGIN_CALLS
