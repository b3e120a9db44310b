"""Audit: exit status by verdict, pods by name, pods of a manifest."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.model.codec import encode
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.cli.conftest import Cli
from tests.components.audit.judge import POD, healthy

MANIFEST = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: x
        resources:
          limits: {nvidia.com/gpu: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: ml}
spec:
  containers:
  - name: main
    image: x
    resources:
      limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 1}
"""
LOOSE = Pod(
    namespace="ml",
    name="loose",
    containers=(Container(name="c", requests={"nvidia.com/gpu": 1}, limits={"nvidia.com/gpu": 1}),),
)


def audit(cli: Cli, snapshot: Snapshot, *flags: str) -> tuple[int, Sequence[str]]:
    """Return the exit status and the subjects of all findings."""
    outcome = cli("audit", "--snapshot", "-", "-o", "json", *flags, stdin=encode(snapshot))
    results = json.loads(outcome.out)["results"]
    return outcome.code, [item["subject"] for each in results for item in each["findings"]]


def kubelet(topology: str) -> Snapshot:
    """Return the healthy node with another Topology Manager policy."""
    settings = healthy().kubelet
    assert settings is not None
    changed: KubeletSettings = replace(settings, topology_manager_policy=topology)
    return replace(healthy(), kubelet=changed)


def test_a_node_that_passes_exits_0(cli: Cli) -> None:
    code, subjects = audit(cli, healthy())
    # A remark: not every job could have GPUs of one NUMA node.
    assert (code, len(subjects)) == (0, 1)


def test_a_failure_exits_1(cli: Cli) -> None:
    code, subjects = audit(cli, kubelet("none"))
    assert (code, len(subjects)) == (1, 1)


def test_a_failure_outranks_what_is_unknown(cli: Cli) -> None:
    assert audit(cli, replace(kubelet("none"), pods=None))[0] == 1


def test_a_source_without_pods_cannot_check_one(cli: Cli) -> None:
    told = encode(replace(healthy(), pods=None))
    outcome = cli("audit", "--snapshot", "-", "--pod", "a/b", stdin=told)
    assert (outcome.code, outcome.out) == (2, "")
    assert "this source knows no pods, so not 'a/b'" in outcome.err


def test_what_is_unknown_exits_3(cli: Cli) -> None:
    assert audit(cli, replace(healthy(), pods=None))[0] == 3


@pytest.mark.parametrize("only", ["kubelet", "KUB-003", "kub-003,qos"])
def test_only_leaves_the_rest_out(cli: Cli, only: str) -> None:
    unknown_pods = replace(kubelet("none"), pods=())
    assert audit(cli, unknown_pods, "--only", only)[0] == 1


def test_only_another_subject_hides_the_failure(cli: Cli) -> None:
    assert audit(cli, kubelet("none"), "--only", "qos") == (0, [])


def test_one_pod_is_judged_alone(cli: Cli) -> None:
    both = replace(healthy(), pods=(POD, LOOSE))
    alone = audit(cli, both, "--only", "qos", "--pod", f"{POD.namespace}/{POD.name}")
    assert alone == (0, [])


def test_a_pod_that_is_not_there_is_bad_input(cli: Cli) -> None:
    outcome = cli("audit", "--snapshot", "-", "--pod", "ml/none", stdin=encode(healthy()))
    assert (outcome.code, outcome.err) == (
        2,
        "error: no pod ml/none on this node — pods are: ml/job-0\n",
    )


def test_a_manifest_takes_the_place_of_the_pods(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    code, subjects = audit(cli, healthy(), "--only", "qos", "--manifest", str(path))
    assert code == 1
    assert subjects
    assert all("train" in subject for subject in subjects), subjects


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    return str(path)


def areas(table: str) -> list[str]:
    """Return the areas of the rules that a table lists."""
    return [line.split()[0] for line in table.splitlines() if line[:1].isalpha() and " " in line]


def test_a_manifest_gets_the_rules_on_pods_and_a_line_on_the_node(cli: Cli, manifest: str) -> None:
    outcome = cli("audit", "--snapshot", "-", "--manifest", manifest, stdin=encode(kubelet("none")))
    lines = outcome.out.splitlines()
    assert areas(outcome.out) == ["qos", "pods", "node:"]
    assert "ml/train" in outcome.out
    node = next(line for line in lines if line.startswith("node: "))
    assert re.fullmatch(
        r"node: [0-9]+ passed, 1 failed \(KUB-003\); run `nodetopo audit` for them", node
    )


def test_a_rule_on_the_node_that_the_pods_decide_is_printed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    many = MANIFEST.partition("---")[0].replace(
        "nvidia.com/gpu: 2", "nvidia.com/gpu: 8, cpu: 8, memory: 1Gi"
    )
    path.write_text(many, encoding="utf-8")
    snapshot = kubelet("single-numa-node")
    outcome = cli("audit", "--snapshot", "-", "--manifest", str(path), stdin=encode(snapshot))
    assert "kubelet" in areas(outcome.out)
    assert "✗ KUB-005" in outcome.out
    assert "KUB-003" not in outcome.out


def test_a_failure_of_the_node_decides_the_exit_status_of_a_manifest(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(MANIFEST.partition("---\n")[2], encoding="utf-8")
    codes = [
        cli("audit", "--snapshot", "-", "--manifest", str(path), stdin=encode(snapshot)).code
        for snapshot in (healthy(), kubelet("none"), replace(healthy(), kubelet=None))
    ]
    assert codes == [0, 1, 3]


def test_the_json_of_a_manifest_has_every_rule(cli: Cli, manifest: str) -> None:
    flags = ("audit", "--snapshot", "-", "-o", "json")
    alone, given = (
        json.loads(cli(*flags, *more, stdin=encode(healthy())).out)
        for more in ((), ("--manifest", manifest))
    )
    assert [it["id"] for it in given["results"]] == [it["id"] for it in alone["results"]]
    assert given.keys() | {"alignment"} == alone.keys() | {"alignment"}


def test_rules_that_were_asked_for_are_printed_for_a_manifest(cli: Cli, manifest: str) -> None:
    flags = ("audit", "--snapshot", "-", "--manifest", manifest, "--only", "KUB-003")
    outcome = cli(*flags, stdin=encode(kubelet("none")))
    assert "✗ KUB-003" in outcome.out
    assert "node: " not in outcome.out


def test_a_warning_passes_unless_strict(cli: Cli) -> None:
    warned = kubelet("best-effort")
    warned = replace(
        warned,
        kubelet=replace(warned.kubelet, memory_manager_policy="None") if warned.kubelet else None,
    )
    assert (audit(cli, warned)[0], audit(cli, warned, "--strict")[0]) == (0, 1)


def test_standard_input_is_the_node_or_the_manifest(cli: Cli) -> None:
    outcome = cli("audit", "--manifest", "-", "--snapshot", "-", stdin=encode(healthy()))
    cure = "save one of them in a file"
    assert (outcome.code, outcome.err) == (2, f"error: standard input is named twice — {cure}\n")
