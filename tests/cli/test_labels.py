"""`nodetopo labels` by settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

NODES = Path(__file__).parents[1] / "nodes"
DGX = ("--machine", "dgx-h100")
MIG = ("--snapshot", str(NODES / "h100x8-nvswitch-2numa-mig" / "snapshot.json"))
MIXED = ("--snapshot", str(NODES / "gb300x2-station-1grace-datadirect" / "snapshot.json"))


def labels(cli: Cli, *arguments: str) -> Any:
    done = cli("labels", *arguments, "-o", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_time_slicing_shows_in_the_labels(cli: Cli) -> None:
    found = labels(cli, *DGX, "--time-slicing", "nvidia.com/gpu=4")
    assert found["nvidia.com/gpu.replicas"] == "4"
    assert found["nvidia.com/gpu.product"].endswith("-SHARED")


def test_the_mig_strategy_gives_labels_by_profile(cli: Cli) -> None:
    key = "nvidia.com/mig-1g.10gb.count"
    assert key in labels(cli, *MIG, "--mig-strategy", "mixed")
    assert key not in labels(cli, *MIG)


def test_settings_of_the_daemon_count_as_variables_too(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODETOPO_LABEL_PREFIX", "topo.acme.com/")
    found = labels(cli, *DGX)
    assert found["topo.acme.com/interconnect"] == "nvswitch"
    assert not [key for key in found if key.startswith("gpu.topology/")]


def test_a_file_of_levels_places_a_node_that_it_names(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "levels.yaml"
    path.write_text("nodes: {gpu-7: [r2, b3]}\n")
    found = labels(cli, *DGX, "--node-name", "gpu-7", "--topology-levels-file", str(path))
    assert found["gpu.topology/tier-0"] == "b3__r2"
    assert found["gpu.topology/tier-1"] == "b3"


def test_what_no_label_says_is_a_warning(cli: Cli) -> None:
    done = cli("labels", *MIXED, "-o", "json")
    assert done.err.startswith("warning: the node has several GPU models, ")
    assert cli("labels", *MIXED, "--strict").code == 1


def test_a_prefix_that_is_not_ours_to_use_is_refused(cli: Cli) -> None:
    done = cli("labels", *DGX, "--label-prefix", "nvidia.com/")
    assert done.code == 2
    assert "reserved: names below nvidia.com are not ours to make" in done.err
