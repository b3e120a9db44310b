"""Audit: exit status by verdict, pods by name, pods of a manifest."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

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
