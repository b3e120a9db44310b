"""Commands about a bundled cluster: no API server is asked, and labels are those of real nodes."""

import json
from typing import Any

import pytest
import yaml

from nodetopo.cli import cluster_api
from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.rules import LabelRules
from nodetopo.machines.bundled import machine
from nodetopo.tools.cluster.export.record import CLAIMS, SCHEDULERS
from nodetopo.tools.cluster.simulated import LAYOUTS, SimulatedCluster, layout
from tests.cli.conftest import Cli

every_cluster = pytest.mark.parametrize("name", LAYOUTS)


@pytest.fixture(autouse=True)
def _no_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a bundled cluster asks no API server")

    monkeypatch.setattr(cluster_api, "ClusterApi", refuse)


def made(name: str) -> SimulatedCluster:
    return SimulatedCluster(
        name=name,
        layout=LAYOUTS[name],
        label=lambda snapshot, tiers: labels(snapshot, LabelRules(levels=tiers)),
        prefix="gpu.topology/",
    )


@every_cluster
@pytest.mark.parametrize("scheduler", [*SCHEDULERS, CLAIMS])
def test_every_export_has_an_output(cli: Cli, name: str, scheduler: str) -> None:
    outcome = cli("export", "--for", scheduler, "--cluster", name)
    assert outcome.code == 0
    assert [*yaml.safe_load_all(outcome.out)] != [None]
    assert outcome.err.startswith(f"simulated: cluster {name}: ")
    assert outcome.err.count("simulated: ") == 1


def test_a_rack_is_a_level_of_eighteen_nodes(cli: Cli) -> None:
    outcome = cli("export", "--for", "kubernetes", "--cluster", "nvl72")
    spec = yaml.safe_load(outcome.out)["spec"]
    assert spec["schedulingPolicy"]["gang"]["minCount"] == 18
    (level,) = spec["schedulingConstraints"]["topology"]
    assert level["key"] == "gpu.topology/nvlink-partition"


def test_leaf_switches_join_nodes_whose_nvlinks_end_at_the_node(cli: Cli) -> None:
    outcome = cli("export", "--for", "kubernetes", "--cluster", "hgx-rails")
    spec = yaml.safe_load(outcome.out)["spec"]
    assert spec["schedulingPolicy"]["gang"]["minCount"] == 4
    assert spec["schedulingConstraints"]["topology"] == [{"key": "gpu.topology/tier-0"}]


@pytest.mark.parametrize("name", ["nvl72", "hgx-rails"])
def test_a_sound_cluster_passes_every_check_of_doctor(cli: Cli, name: str) -> None:
    outcome = cli("doctor", "--cluster", name, "-o", "json")
    assert outcome.code == 0
    report = json.loads(outcome.out)
    assert {row["verdict"] for row in report["results"]} == {"pass"}


def test_the_faults_of_two_racks_are_found(cli: Cli) -> None:
    outcome = cli("doctor", "--cluster", "nvl72-two-racks", "-o", "json")
    assert outcome.code == 1
    results = json.loads(outcome.out)["results"]
    failed = {row["id"]: row["findings"] for row in results if row["verdict"] != "pass"}
    assert failed.keys() == {"CLU-001", "CLU-009"}
    assert all("rack-2-tray-07" in one["observed"] for one in failed["CLU-001"])
    assert "20 pods of 4 GPUs" in failed["CLU-009"][0]["observed"]


@every_cluster
@pytest.mark.parametrize(
    ("claim", "code", "words"),
    [
        ("scattered", 1, "a better set of GPUs was free"),
        ("near", 0, "no better set of GPUs was free"),
        ("too-large", 1, "waits: nothing is allocated"),
    ],
)
def test_claims_have_good_and_poor_sets(
    cli: Cli, name: str, claim: str, code: int, words: str
) -> None:
    outcome = cli("explain-claim", f"simulated/{claim}", "--cluster", name)
    assert outcome.code == code
    assert outcome.out.startswith(f"simulated/{claim}   {words}")


@every_cluster
def test_labels_are_those_of_the_machine(name: str) -> None:
    cluster = made(name)
    rack = cluster.layout.racks[0]
    (node, *_) = cluster.nodes("")
    own = labels(machine(rack.machine), LabelRules(levels=rack.tiers))
    places = {f"gpu.topology/{key}" for key in ("nvlink-domain", "nvlink-partition")}
    places.add("nvidia.com/gpu.clique")  # these differ by fabric and node
    assert own.keys() <= node.labels.keys()
    differing = {key for key, value in own.items() if node.labels[key] != value}
    assert differing <= places
    assert set(node.owners or {}) == set(node.labels)


@every_cluster
def test_no_gpu_is_on_two_nodes(name: str) -> None:
    uuids = [
        device["attributes"]["uuid"]["string"]
        for each in made(name).slices()
        for device in each["spec"]["devices"]
    ]
    assert len(uuids) == len(set(uuids))


def test_nvlinks_of_hgx_nodes_end_at_the_node() -> None:
    domains = {node.labels["gpu.topology/nvlink-domain"] for node in made("hgx-rails").nodes("")}
    assert len(domains) == 16


def test_another_prefix_is_that_of_the_labels(cli: Cli) -> None:
    flags = ("--cluster", "nvl72", "--label-prefix", "example.com/")
    outcome = cli("export", "--for", "kueue", *flags)
    levels_: list[Any] = next(yaml.safe_load_all(outcome.out))["spec"]["levels"]
    assert {"nodeLabel": "example.com/nvlink-partition"} in levels_


def test_selectors_choose_nodes(cli: Cli) -> None:
    flags = ("--cluster", "hgx-rails", "--selector", "gpu.topology/tier-0=leaf-2")
    found = yaml.safe_load(cli("export", "--for", "kubernetes", *flags).out)
    assert found["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4
    assert cli("doctor", "--cluster", "nvl72", "--selector", "pool=none").code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("doctor", "--cluster", "nvl27"), "unknown cluster 'nvl27' — did you mean 'nvl72'?"),
        (("doctor", "--cluster", "zzz"), "bundled are: nvl72, nvl72-two-racks, hgx-rails"),
        (("explain-claim", "nope", "--cluster", "nvl72"), "its claims are: simulated/scattered"),
        (
            ("explain-claim", "nope", "--cluster", "nvl72", "--claims", "f"),
            "--cluster has its own claims and slices",
        ),
        (
            ("export", "--for", "dra", "--cluster", "nvl72", "--slices", "f"),
            "--cluster has its own ResourceSlices",
        ),
        (
            ("export", "--for", "dra", "--cluster", "nvl72", "--machine", "dgx-2"),
            "--cluster does not go with one machine",
        ),
        (("doctor", "--cluster", "nvl72", "--nodes", "f"), "not allowed with argument"),
    ],
)
def test_wrong_use_is_refused(cli: Cli, words: tuple[str, ...], message: str) -> None:
    outcome = cli(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_names_have_any_case() -> None:
    assert layout(" NVL72 ")[0] == "nvl72"


def test_the_list_has_the_nodes_and_gpus(cli: Cli) -> None:
    found = json.loads(cli("simulate", "clusters", "-o", "json").out)
    assert [(each["name"], each["nodes"], each["gpus"]) for each in found] == [
        ("nvl72", 18, 72),
        ("nvl72-two-racks", 36, 144),
        ("hgx-rails", 16, 128),
    ]
