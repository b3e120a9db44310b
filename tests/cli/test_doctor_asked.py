"""What `nodetopo doctor` takes for asked, and what it says that it did not look at."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodetopo.tools.cluster.node import ClusterNode
from tests.cli.conftest import Cli
from tests.cli.doctor_input import written
from tests.tools.cluster.examined import nodes
from tests.tools.cluster.labelled import HOSTNAME

PLAIN = ClusterNode(name="n9", labels={HOSTNAME: "n9", "pool": "gpu"}, owners={})
OBJECT: dict[str, Any] = {"metadata": {"name": "it"}, "spec": {}}
TOPOLOGY = {**OBJECT, "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology"}
HYPER_NODE = {**OBJECT, "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode"}
POD = {**OBJECT, "apiVersion": "v1", "kind": "Pod"}
WORKLOAD = {**OBJECT, "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}


@pytest.mark.parametrize(
    ("objects", "code"),
    [([], 0), ([WORKLOAD], 0), ([POD, WORKLOAD], 0), ([TOPOLOGY, HYPER_NODE], 3), ([POD], 3)],
)
def test_a_file_that_says_nothing_of_gangs_leaves_them_unknown(
    cli: Cli, tmp_path: Path, objects: list[Any], code: int
) -> None:
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"kind": "List", "items": objects}))
    arguments = ("--nodes", written(tmp_path, nodes()), "--objects", str(asked))
    outcome = cli("doctor", *arguments, "--only", "CLU-009")
    assert outcome.code == code
    assert ("not known: gangs" in outcome.out) is (code == 3)


def test_standard_input_can_be_one_file_only(cli: Cli) -> None:
    outcome = cli("doctor", "--nodes", "-", "--objects", "-", stdin="{}")
    assert outcome.code == 2
    cure = "save one of them in a file"
    assert outcome.err == f"error: standard input is named twice — {cure}\n"


def test_nodes_that_are_not_judged_are_counted(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path, (*nodes(), PLAIN))
    arguments = ("doctor", "--nodes", file, "--only", "levels")
    outcome = cli(*arguments)
    assert outcome.out.startswith("5 nodes with GPUs; of 1 more no label tells of any\n")
    assert json.loads(cli(*arguments, "-o", "json").out)["others"] == ["n9"]


def test_chosen_nodes_are_not_said_to_have_gpus(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path, (*nodes(), PLAIN))
    outcome = cli("doctor", "--nodes", file, "--selector", "pool=gpu", "--only", "CLU-001")
    assert outcome.code == 3
    assert outcome.out.startswith("1 node that --selector chooses\n")
    assert "whether n9 should have levels" in outcome.out
