"""`export`, from the command line."""

import dataclasses
import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct

from nodetopo.cli import export
from nodetopo.cli.main import parser
from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.record import FORMS, SCHEDULERS
from nodetopo.tools.cluster.node import ClusterNode
from tests.kubeapi.fake_api_server import FakeApi, Reply, serving
from tests.tools.cluster.labelled import (
    CLIQUE,
    DOMAIN,
    HOSTNAME,
    PARTITION,
    RUNAI,
    labelled,
    tray,
    with_labels,
    without,
)

RACK = tuple(tray(f"gb-{number}", number % 2, more={"pool": "gb"}) for number in range(4))
DGX = labelled("dgx-0", "dgx-h100")


class Printed(Struct, frozen=True, kw_only=True):
    """What one run of the command left behind."""

    code: int
    out: str
    err: list[str]
    warnings: list[str]


class Export:
    """Runs the command over the file of some nodes."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._file, self._capsys = file, capsys

    def __call__(self, *argv: str, nodes: tuple[ClusterNode, ...] = (*RACK, DGX)) -> Printed:
        """Run it with *argv* over a file of *nodes*."""
        items = [
            {"kind": "Node", "metadata": {"name": node.name, "labels": dict(node.labels)}}
            for node in nodes
        ]
        self._file.write_text(json.dumps({"kind": "List", "items": items}))
        return self.without_nodes(*argv, "--nodes", str(self._file))

    def without_nodes(self, *argv: str) -> Printed:
        """Run it with *argv* alone."""
        whole = parser("export")
        start = Namespace(warnings=[], strict=False, incomplete=False)
        args = whole.parse_args(["export", *argv], start)
        code = export.run(args)
        printed = self._capsys.readouterr()
        return Printed(
            code=code, out=printed.out, err=printed.err.splitlines(), warnings=args.warnings
        )


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    return Export(tmp_path / "nodes.json", capsys)


def levels(document: Any) -> list[str]:
    return [level["nodeLabel"] for level in document["spec"]["levels"]]


def test_objects_are_yaml_documents_that_kubectl_can_apply(run: Export) -> None:
    found = run("--for", "kueue", "--selector", "pool=gb", "--name", "racks")
    topology, flavor = yaml.safe_load_all(found.out)
    assert (found.code, found.warnings) == (0, [])
    assert levels(topology) == [DOMAIN, PARTITION, HOSTNAME]
    assert flavor["spec"] == {"nodeLabels": {"pool": "gb"}, "topologyName": "racks"}
    annotation = f"kueue.x-k8s.io/podset-required-topology: {PARTITION}"
    advice = f"name the flavor racks in a ClusterQueue; in pod templates annotate {annotation}"
    assert found.err == [f"note: {advice}"]


def test_only_terms_of_equality_describe_a_flavor(run: Export) -> None:
    found = run("--for", "kueue", "--selector", "pool=gb,rack!=r9,!cordoned,pool")
    assert list(yaml.safe_load_all(found.out))[1]["spec"]["nodeLabels"] == {"pool": "gb"}


def test_as_json_objects_are_one_list(run: Export) -> None:
    found = json.loads(run("--for", "kueue", "--selector", "pool=gb", "-o", "json").out)
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert [item["kind"] for item in found["items"]] == ["Topology", "ResourceFlavor"]


def test_what_is_no_object_is_printed_bare(run: Export) -> None:
    request = run("--for", "runai", "--cluster-id", RUNAI, "--levels", f"{DOMAIN},{HOSTNAME}").out
    assert json.loads(request) == {
        "name": "gpu-topology",
        "clusterId": RUNAI,
        "levels": [DOMAIN, HOSTNAME],
    }
    as_yaml = run("--for", "runai", "--cluster-id", RUNAI, "-o", "yaml").out
    assert yaml.safe_load(as_yaml)["clusterId"] == RUNAI
    values = run("--for", "topograph", "--form", "provider").out
    assert yaml.safe_load(values)["provider"]["params"]["accelerator"] == {
        "source": "kubernetes-label",
        "kubernetesLabel": {"key": CLIQUE},
    }


def test_slurms_files_are_printed_as_slurm_reads_them(run: Export) -> None:
    first, second = yaml.safe_load(run("--for", "slurm").out)
    assert list(first) == ["topology", "cluster_default", "tree"]
    assert list(second) == ["topology", "cluster_default", "block"]
    lines = run("--for", "slurm", "--form", "conf-block").out.splitlines()
    assert lines[-1] == "BlockSizes=2"
    with pytest.raises(InputError, match="conf-block is a format of its own"):
        run("--for", "slurm", "--form", "conf-block", "-o", "json")


def test_a_file_inside_an_object_is_printed_line_by_line(run: Export) -> None:
    found = run("--for", "volcano", "--form", "discovery", "--in-namespace", "batch").out
    assert "  volcano-controller.conf: |\n    networkTopologyDiscovery:\n" in found
    assert yaml.safe_load(found)["metadata"]["namespace"] == "batch"


def test_the_size_of_a_group_can_be_said(run: Export) -> None:
    (group,) = yaml.safe_load_all(run("--for", "kubernetes", "--size", "18").out)
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 18}}


def test_what_is_left_out_is_a_warning_that_strict_counts(run: Export) -> None:
    nodes = (*RACK, with_labels(DGX, {"topology.kubernetes.io/zone": "a"}))
    found = run("--for", "kai", "--strict", nodes=nodes)
    text = "topology.kubernetes.io/zone left out: 4 of 5 nodes with GPUs lack it: "
    assert found.warnings == [f"{text}gb-0, gb-1, gb-2, gb-3"]
    assert found.err[0] == f"warning: {found.warnings[0]}"


def test_the_prefix_can_be_given(run: Export) -> None:
    nodes = tuple(
        with_labels(without(node, DOMAIN, PARTITION), {"t.example.com/nvlink-partition": "p"})
        for node in RACK
    )
    found = run("--for", "kai", "--label-prefix", "t.example.com/", nodes=nodes)
    assert levels(yaml.safe_load(found.out)) == ["t.example.com/nvlink-partition", HOSTNAME]


def test_an_unknown_scheduler_is_refused_with_the_nearest(run: Export) -> None:
    with pytest.raises(InputError, match="did you mean 'kueue'"):
        run("--for", "kueu")


def test_help_names_every_scheduler_and_form(capsys: pytest.CaptureFixture[str]) -> None:
    whole = parser("export")
    with pytest.raises(SystemExit):
        whole.parse_args(["export", "--help"])
    text = capsys.readouterr().out
    names = {*FORMS, *(form for forms in FORMS.values() for form in forms)}
    assert [name for name in sorted(names) if name not in text] == []


def test_nodes_come_from_the_api_server_where_no_file_is_named(run: Export, tmp_path: Path) -> None:
    api = FakeApi()
    api.set_by("nodetopo", dict(DGX.labels))
    with serving(api, tmp_path) as kubeconfig:
        found = run.without_nodes("--for", "kai", "--kubeconfig", str(kubeconfig))
    assert levels(yaml.safe_load(found.out)) == [DOMAIN, PARTITION, HOSTNAME]
    assert api.writes == 0


BARE = (ClusterNode(name="a", labels={}), ClusterNode(name="b", labels={}))
HOSTS = tuple(ClusterNode(name=name, labels={HOSTNAME: name}) for name in "ab")


@pytest.mark.parametrize(
    ("scheduler", "nodes", "why"),
    [
        *((name, (), "no Node in ") for name in SCHEDULERS if name != "runai"),
        *((name, BARE, "no label that all nodes carry") for name in SCHEDULERS if name != "runai"),
        ("kubernetes", HOSTS, "no level above the single node"),
        ("topograph", HOSTS, "no label tells of NVLink between nodes"),
    ],
)
def test_nothing_to_export_is_a_warning_and_no_failure(
    run: Export, scheduler: str, nodes: tuple[ClusterNode, ...], why: str
) -> None:
    found = run("--for", scheduler, nodes=nodes)
    assert (found.code, found.out) == (0, "")
    (line,) = found.err
    assert line.startswith(f"warning: nothing to export: {why}")
    assert found.warnings == [line.removeprefix("warning: ")]


def test_a_selector_that_leaves_no_node_is_bad_input(run: Export) -> None:
    with pytest.raises(InputError, match=r"no Node in .* — check --selector"):
        run("--for", "kai", "--selector", "no=such")


@dataclasses.dataclass
class ServingApi(FakeApi):
    """Serves PodGroups in *versions* of scheduling.k8s.io."""

    versions: tuple[str, ...] = ()

    def _routed(
        self, method: str, path: str, query: dict[str, str], body: Mapping[str, Any]
    ) -> Reply:
        group, _, version = path.rpartition("/")
        if group == "/apis/scheduling.k8s.io":
            known = {"resources": [{"name": "podgroups"}, {"name": "workloads"}]}
            return (200, known) if version in self.versions else (404, {})
        if path == "/api/v1/nodes":
            items = [{"metadata": {"name": it.name, "labels": dict(it.labels)}} for it in RACK]
            return 200, {"metadata": {}, "items": items}
        return super()._routed(method, path, query, body)


@pytest.mark.parametrize(
    ("versions", "form", "answer"),
    [
        (("v1alpha2",), None, ("v1alpha2", None)),
        (("v1alpha3", "v1beta1"), None, ("v1beta1", None)),
        (("v1alpha3",), None, ("v1alpha3", None)),
        ((), None, ("v1alpha2", "no PodGroup: the gate GenericWorkload is off")),
        (
            ("v1alpha3", "v1beta1"),
            "v1alpha2",
            ("v1alpha2", "no PodGroup in v1alpha2: it serves v1alpha3, v1beta1"),
        ),
        ((), "v1beta1", ("v1beta1", "no PodGroup in v1beta1: the gate GenericWorkload is off")),
    ],
)
def test_the_form_is_the_newest_that_the_cluster_serves(
    run: Export,
    tmp_path: Path,
    versions: tuple[str, ...],
    form: str | None,
    answer: tuple[str, str | None],
) -> None:
    printed, said = answer
    chosen = () if form is None else ("--form", form)
    with serving(ServingApi(versions=versions), tmp_path) as kubeconfig:
        found = run.without_nodes("--for", "kubernetes", "--kubeconfig", str(kubeconfig), *chosen)
    (group,) = yaml.safe_load_all(found.out)
    assert group["apiVersion"] == f"scheduling.k8s.io/{printed}"
    assert [it for it in found.warnings if said and said in it] or said is None
