"""`nodetopo doctor` from end to end: files, flags, the API server, exit status."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from nodetopo.tools.cluster.kinds import KAI_POD_GROUP, KAI_TOPOLOGY
from nodetopo.tools.cluster.node import ClusterNode
from tests.cli.conftest import Cli
from tests.cli.doctor_input import item, written
from tests.kubeapi.fake_api_server import serving
from tests.kubeapi.fake_lists import FakeLists
from tests.tools.cluster.examined import nodes
from tests.tools.cluster.labelled import (
    CLIQUE,
    CLUSTER,
    HOSTNAME,
    PARTITION,
    ZONE,
    with_labels,
    without,
)

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schema" / "doctor.json"
NODES = "/api/v1/nodes"
(KAI_GROUPS,) = KAI_POD_GROUP.paths()
(KAI_TOPOLOGIES,) = KAI_TOPOLOGY.paths()


def objects(tmp_path: Path, *found: dict[str, Any]) -> str:
    """Return the name of a file with these objects."""
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"kind": "List", "items": found}))
    return str(file)


def pod_group(size: int, key: str = PARTITION) -> dict[str, Any]:
    constraint = {"requiredTopologyLevel": key, "topology": "it"}
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"namespace": "ml", "name": "train"},
        "spec": {"minMember": size, "topologyConstraint": constraint},
    }


def topology(*keys: str) -> dict[str, Any]:
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "it"},
        "spec": {"levels": [{"nodeLabel": key} for key in keys]},
    }


def verdicts(text: str) -> dict[str, str]:
    """Return code → verdict of all that is not a pass."""
    results = json.loads(text)["results"]
    return {one["id"]: one["verdict"] for one in results if one["verdict"] != "pass"}


def test_a_healthy_cluster_passes(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path, nodes())
    outcome = cli("doctor", "--nodes", file, "--group", f"2@{PARTITION}")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[:2] == [
        "5 nodes with GPUs",
        f"labels of the nodes: {ZONE} > gpu.topology/nvlink-domain > {PARTITION} > {HOSTNAME}",
    ]
    assert (
        outcome.out.splitlines()[-1]
        == "0 failed · 0 warned · 0 unknown · 10 passed (--all lists them)"
    )


def test_dropped_nodes_fail_the_command_and_are_named(cli: Cli, tmp_path: Path) -> None:
    first, second, *rest = nodes()
    file = written(tmp_path, (without(first, ZONE), without(second, ZONE), *rest))
    outcome = cli("doctor", "--nodes", file, "--only", "levels")
    assert outcome.code == 1
    assert "✗ CLU-001" in outcome.out
    assert "observed missing on 2 of 5: n[0-1]" in outcome.out


def test_a_file_alone_knows_no_gangs_and_says_so(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("doctor", "--nodes", written(tmp_path, nodes()), "-o", "json")
    assert (outcome.code, verdicts(outcome.out)) == (3, {"CLU-009": "unknown"})
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(outcome.out))


def test_nodes_come_from_standard_input_too(cli: Cli) -> None:
    text = json.dumps({"items": list(map(item, nodes()))})
    assert cli("doctor", "--nodes", "-", "--only", "levels,nvlink", stdin=text).code == 0


@pytest.mark.parametrize(("size", "code"), [(2, 0), (3, 1)])
def test_a_group_by_hand_is_judged(cli: Cli, tmp_path: Path, size: int, code: int) -> None:
    file = written(tmp_path, nodes())
    assert cli("doctor", "--nodes", file, "--group", f"{size}@{PARTITION}").code == code


def test_gangs_and_topologies_come_from_a_file(cli: Cli, tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod"}
    asked = objects(tmp_path, topology(CLIQUE, HOSTNAME), pod_group(2, "a/none"), pod)
    file = written(tmp_path, nodes())
    outcome = cli("doctor", "--nodes", file, "--objects", asked, "-o", "short")
    assert outcome.code == 1
    assert [line.split()[1] for line in outcome.out.splitlines()] == ["CLU-001", "CLU-009"]
    assert "KAI PodGroup ml/train observed 2 pods within one a/none" in outcome.out
    assert outcome.err == f"warning: {asked}: says nothing about gangs or levels: v1 Pod\n"


def test_levels_by_hand_are_judged_before_those_of_topologies(cli: Cli, tmp_path: Path) -> None:
    asked = objects(tmp_path, topology(CLIQUE, HOSTNAME), pod_group(1))
    arguments = ("doctor", "--nodes", written(tmp_path, nodes()), "--objects", asked)
    assert cli(*arguments, "--levels", f"{ZONE}, {HOSTNAME}").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "fish"), "unknown subject 'fish'"),
        (("--group", "many@a"), "not a group: 'many@a'"),
        (("--objects", "/nowhere"), "cannot read /nowhere"),
        (("--node-snapshot", "/nowhere"), "cannot read /nowhere"),
        (("--selector", "a in (b)"), "not a selector"),
        (("--selector", "no=such"), "no Node in"),
    ],
)
def test_bad_usage_is_told_in_one_line(
    cli: Cli, tmp_path: Path, arguments: Sequence[str], said: str
) -> None:
    outcome = cli("doctor", "--nodes", written(tmp_path, nodes()), *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_nodes_without_gpus_are_judged_only_when_selected(cli: Cli, tmp_path: Path) -> None:
    plain = ClusterNode(name="n9", labels={HOSTNAME: "n9", "pool": "gpu"})
    file = written(tmp_path, [plain])
    outcome = cli("doctor", "--nodes", file)
    assert outcome.code == 3
    assert "no label of 1 Nodes tells of GPUs" in outcome.err
    chosen = cli("doctor", "--nodes", file, "--selector", "pool=gpu", "--levels", CLIQUE)
    assert "observed missing on 1 of 1: n9" in chosen.out


def served(**more: list[dict[str, Any]]) -> FakeLists:
    return FakeLists(lists={NODES: list(map(item, nodes())), **more})


def test_a_cluster_is_asked_for_its_levels_and_gangs(cli: Cli, tmp_path: Path) -> None:
    fake = served(**{KAI_TOPOLOGIES: [topology(CLIQUE, HOSTNAME)], KAI_GROUPS: [pod_group(3)]})
    with serving(fake, tmp_path) as kubeconfig:
        outcome = cli("doctor", "--kubeconfig", str(kubeconfig), "-o", "json")
    # Three pods need more than the two nodes of a partition, or less than a node each.
    assert (outcome.code, verdicts(outcome.out)) == (1, {"CLU-001": "fail", "CLU-009": "unknown"})
    assert json.loads(outcome.out)["topologies"] == [
        {"name": "KAI Topology it", "levels": [CLIQUE, HOSTNAME]}
    ]
    assert all(query == {"limit": "500"} for _, query in fake.asked)


def test_a_cluster_without_any_gang_passes(cli: Cli, tmp_path: Path) -> None:
    with serving(served(), tmp_path) as kubeconfig:
        assert cli("doctor", "--kubeconfig", str(kubeconfig)).code == 0


def test_what_may_not_be_listed_is_unknown_or_a_warning(cli: Cli, tmp_path: Path) -> None:
    fake = served()
    fake.forbidden = {KAI_GROUPS, KAI_TOPOLOGIES}
    fake.lists |= {f"/apis/{kind.group}": [] for kind in (KAI_POD_GROUP, KAI_TOPOLOGY)}
    with serving(fake, tmp_path) as kubeconfig:
        outcome = cli("doctor", "--kubeconfig", str(kubeconfig), "-o", "json")
    assert (outcome.code, verdicts(outcome.out)) == (3, {"CLU-009": "unknown"})
    assert outcome.err.startswith("warning: KAI Topology: GET")
    assert "grant `list` on podgroups" in outcome.out


def test_nodes_that_may_not_be_listed_end_the_command(cli: Cli, tmp_path: Path) -> None:
    with serving(FakeLists(forbidden={NODES}), tmp_path) as kubeconfig:
        outcome = cli("doctor", "--kubeconfig", str(kubeconfig))
    assert (outcome.code, outcome.out) == (3, "")
    assert "grant `list` on nodes" in outcome.err


def test_a_prefix_of_one_s_own_is_read(cli: Cli, tmp_path: Path) -> None:
    renamed = [
        replace(
            node,
            labels={key.replace("gpu.topology/", "x.y/"): v for key, v in node.labels.items()},
        )
        for node in nodes()
    ]
    file = written(tmp_path, [with_labels(renamed[0], {CLIQUE: f"{CLUSTER}.9"}), *renamed[1:]])
    arguments = ("doctor", "--nodes", file, "--only", "CLU-008")
    assert cli(*arguments).code == 3
    assert cli(*arguments, "--label-prefix", "x.y/").code == 1


def test_every_code_is_explained(cli: Cli) -> None:
    outcome = cli("explain", "clu-004")
    assert outcome.code == 0
    assert "nodetopo doctor --only levels" in outcome.out


def test_names_from_a_stranger_s_cluster_do_not_steer_the_terminal(
    cli: Cli, tmp_path: Path
) -> None:
    hostile = with_labels(nodes()[0], {ZONE: "\x1b[2Ja", CLIQUE: "\x1b[2Jb"})
    file = written(tmp_path, (hostile, *nodes()[1:]))
    named = topology(ZONE, "\x1b[2Jc")
    named["metadata"]["name"] = "\x1b[2Jit"
    asked = objects(tmp_path, named, pod_group(9, "\x1b[2Jd"))
    for form in ("table", "short", "json", "yaml"):
        outcome = cli("doctor", "--nodes", file, "--objects", asked, "-o", form)
        assert "\x1b" not in outcome.out + outcome.err
