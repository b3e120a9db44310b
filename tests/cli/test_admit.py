"""``admit``: exit status by verdict, what is printed, and what it refuses."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from nodetopo.cli.admit import preference
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.admission.admission_node import GPU, kubelet, node, with_gpus_held
from tests.cli.conftest import Cli
from tests.cli.outcome import Outcome

_POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ml}}
spec:
  containers:
  - name: work
    image: x
    resources:
      limits: {{cpu: 4, memory: 8Gi, nvidia.com/gpu: {gpus}}}
---
"""
FITS = _POD.format(name="fits", gpus=4)
WIDE = _POD.format(name="wide", gpus=6)
_DOCS = Path(__file__).parents[2] / "docs" / "reference"
_SCHEMA = _DOCS / "schema" / "admit.json"


def _admit(
    cli: Cli, tmp_path: Path, text: str, *flags: str, seen: Snapshot | None = None
) -> Outcome:
    manifest = tmp_path / "pods.yaml"
    manifest.write_text(text, "utf-8")
    stored = encode(seen or replace(node(), node="gpu-1"))
    return cli("admit", "--manifest", str(manifest), "--snapshot", "-", *flags, stdin=stored)


def test_a_pod_that_fits_is_admitted_with_what_it_would_get(cli: Cli, tmp_path: Path) -> None:
    outcome = _admit(cli, tmp_path, FITS)

    assert outcome.code == 0
    assert outcome.out.splitlines()[:2] == [
        "Topology Manager policy restricted · scope container   node gpu-1",
        "✓ ml/fits (Guaranteed) admitted",
    ]
    assert "CPUs            1-2,17-18" in outcome.out
    assert "memory          8Gi of NUMA 0" in outcome.out


def test_a_rejected_pod_is_explained_with_what_would_help(cli: Cli, tmp_path: Path) -> None:
    outcome = _admit(cli, tmp_path, WIDE)

    assert outcome.code == 1
    assert "✗ ml/wide (Guaranteed) rejected: TopologyAffinityError" in outcome.out
    assert "    → container work: 4 nvidia.com/gpu instead of 6\n" in outcome.out


def test_pods_of_a_manifest_come_one_after_the_other(cli: Cli, tmp_path: Path) -> None:
    outcome = _admit(cli, tmp_path, FITS * 3, "-o", "short")

    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "✓ ml/fits (Guaranteed) admitted",
        "✓ ml/fits (Guaranteed) admitted",
        "✓ ml/fits (Guaranteed) admitted alone; not beside ml/fits and ml/fits",
    ]


_ROLES = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train, namespace: ml}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: &whole {spec: {containers: [{name: pytorch, image: x,
      resources: {limits: {cpu: 20, memory: 40Gi, nvidia.com/gpu: 8}}}]}}}
    Worker: {replicas: 3, template: *whole}
"""


def test_roles_that_take_a_node_each_are_no_failure(cli: Cli, tmp_path: Path) -> None:
    outcome = _admit(cli, tmp_path, _ROLES)

    alone = "✓ ml/train-worker (Guaranteed) admitted alone: 1 of 3 replicas; not beside "
    assert outcome.code == 0
    assert "✓ ml/train-master (Guaranteed) admitted\n" in outcome.out
    assert f"{alone}ml/train-master\n    beside ml/train-master it is rejected: " in outcome.out


def test_other_settings_can_be_asked_about(cli: Cli, tmp_path: Path) -> None:
    assert _admit(cli, tmp_path, WIDE, "--policy", "best-effort").code == 0
    assert _admit(cli, tmp_path, WIDE, "--policy", "restricted", "--scope", "pod").code == 1


def test_more_numa_nodes_can_be_allowed(cli: Cli, tmp_path: Path) -> None:
    tray = ("admit", "--machine", "gb200-nvl72", "--policy", "restricted", "--manifest")
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(FITS, "utf-8")

    refused = cli(*tray, str(manifest))
    assert refused.code == 3
    assert "more than 8 NUMA Nodes, and this one has 34; max-allowable-numa-nodes" in refused.out
    allowed = cli(*tray, str(manifest), "--policy-option", "max-allowable-numa-nodes=34")
    assert allowed.code == 0
    assert "hint            nvidia.com/gpu: prefers NUMA 0+1\n" in allowed.out


def test_an_option_that_the_topology_manager_lacks_is_an_error(cli: Cli, tmp_path: Path) -> None:
    outcome = _admit(cli, tmp_path, FITS, "--policy-option", "full-pcpus-only=true")

    assert outcome.code == 2
    assert "is not NAME=VALUE with NAME one of max-allowable-numa-nodes, prefer" in outcome.err


def test_what_is_missing_is_exit_status_3(cli: Cli, tmp_path: Path) -> None:
    outcome = _admit(cli, tmp_path, FITS, seen=replace(node(), kubelet=None))

    assert outcome.code == 3
    assert "? ml/fits (Guaranteed) the verdict is not known" in outcome.out
    assert "    not known: the kubelet's settings\n" in outcome.out


def test_what_several_pods_lack_is_said_once_with_the_pods(cli: Cli, tmp_path: Path) -> None:
    two = FITS + FITS.replace("name: fits", "name: again")
    outcome = _admit(cli, tmp_path, two, seen=replace(node(), kubelet=None))

    assert outcome.out.count("the kubelet's settings") == 1
    assert outcome.out.endswith("? not known: the kubelet's settings: ml/fits and ml/again\n")
    many = _admit(cli, tmp_path, FITS * 50, seen=replace(node(), kubelet=None))
    assert many.out.endswith("settings: ml/fits, ml/fits, ml/fits and 47 more\n")


def test_a_rejection_outweighs_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    blank = WIDE.replace("limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 6}", "claims: []")
    whole = blank.replace("spec:", "spec:\n  resources: {limits: {cpu: 1, memory: 1Gi}}", 1)
    gates = kubelet(feature_gates={"PodLevelResourceManagers": True})

    outcome = _admit(cli, tmp_path, WIDE + whole, seen=replace(node(), kubelet=gates))
    assert outcome.code == 1
    assert "? ml/wide" in outcome.out


def test_of_whole_gpus_our_allocator_chooses_as_our_device_plugin_does() -> None:
    prefer = preference(machine("dgx-1v"))
    gpus = tuple(str(gpu.uuid) for gpu in machine("dgx-1v").gpus)

    assert prefer(GPU, frozenset(gpus), frozenset(), 2) == {gpus[0], gpus[3]}
    assert prefer(GPU, frozenset(gpus), frozenset(gpus[1:2]), 2) == {gpus[1], gpus[2]}


def test_of_other_devices_the_lowest_ids_are_taken() -> None:
    prefer = preference(machine("dgx-1v"))

    assert prefer("rdma/hca", frozenset("bca"), frozenset("c"), 2) == {"a", "c"}


@pytest.mark.parametrize("text", [FITS, WIDE, FITS + WIDE + FITS])
def test_json_is_what_the_schema_promises(cli: Cli, tmp_path: Path, text: str) -> None:
    schema = json.loads(_SCHEMA.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    for seen in (node(), node(topology_manager_policy="none"), replace(node(), offer=None)):
        outcome = _admit(cli, tmp_path, text, "-o", "json", seen=seen)
        Draft202012Validator(schema).validate(json.loads(outcome.out))


def test_as_yaml_it_holds_the_same(cli: Cli, tmp_path: Path) -> None:
    as_json = json.loads(_admit(cli, tmp_path, FITS + WIDE, "-o", "json").out)

    assert yaml.safe_load(_admit(cli, tmp_path, FITS + WIDE, "-o", "yaml").out) == as_json


_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: serve, namespace: ml}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: serve}}}}
  template:
    metadata: {{labels: {{app: serve}}}}
    spec:
      containers:
      - name: work
        image: x
        resources:
          limits: {{cpu: 4, memory: 8Gi, nvidia.com/gpu: 4}}
"""


def test_a_deployment_that_fits_in_part_says_how_much(cli: Cli, tmp_path: Path) -> None:
    part = _admit(cli, tmp_path, _DEPLOYMENT.format(replicas=3))
    whole = _admit(cli, tmp_path, _DEPLOYMENT.format(replicas=2), "-o", "short")

    assert part.code == 0
    assert "✓ ml/serve (Guaranteed) admitted: 2 of 3 replicas\n" in part.out
    assert "    the next replica is rejected: TopologyAffinityError: " in part.out
    assert whole.out == "✓ ml/serve (Guaranteed) admitted\n"
    as_json = json.loads(_admit(cli, tmp_path, _DEPLOYMENT.format(replicas=3), "-o", "json").out)
    assert [(pod["replicas"], pod["admitted_replicas"]) for pod in as_json["pods"]] == [(3, 2)]


def test_what_the_api_server_refuses_is_exit_status_2_in_one_line(cli: Cli, tmp_path: Path) -> None:
    whole = "spec:\n  resources: {limits: {cpu: 8, nvidia.com/gpu: 4}}"
    outcome = _admit(cli, tmp_path, FITS.replace("spec:", whole, 1))

    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert "pods.yaml: document 1 (Pod fits): spec.resources.limits.nvidia.com/gpu: " in line
    assert line.endswith(" — state it in the resources of a container")


def test_a_rejection_lists_nothing_as_given(cli: Cli, tmp_path: Path) -> None:
    first = "containers:\n  - {name: first, image: x, resources: {limits: {cpu: 2, memory: 1Gi}}}"
    outcome = _admit(cli, tmp_path, WIDE.replace("containers:", first))

    assert outcome.code == 1
    assert "        hint  " in outcome.out
    assert "of NUMA" not in outcome.out
    assert "CPUs  " not in outcome.out


def test_a_rejection_that_nothing_helps_says_so(cli: Cli, tmp_path: Path) -> None:
    nothing_left = with_gpus_held(node(), *range(8))
    outcome = _admit(cli, tmp_path, FITS, "--policy", "none", seen=nothing_left)

    assert "    → no single change and no pair of changes would admit it\n" in outcome.out


def test_the_worked_example_of_the_page_is_what_is_printed(cli: Cli, tmp_path: Path) -> None:
    page = (_DOCS / "admit.md").read_text("utf-8")
    manifest = tmp_path / "trainer.yaml"
    manifest.write_text(page.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    command, _, printed = page.partition("\n$ ")[2].partition("```")[0].partition("\n")
    words = [str(manifest) if it == manifest.name else it for it in command.split()[1:]]

    outcome = cli(*words)
    assert (outcome.code, outcome.out) == (1, printed)


def test_hostile_names_do_not_steer_the_terminal(cli: Cli, tmp_path: Path) -> None:
    hostile = WIDE.replace("name: work", 'name: "w\\x1b[31mork"')

    outcome = _admit(cli, tmp_path, hostile)

    assert outcome.code == 2
    assert "\x1b" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Service\napiVersion: v1\nmetadata: {name: x}\n", "no pod in the manifest"),
        ("a: [", "pods.yaml"),
    ],
)
def test_a_manifest_without_pods_is_bad_input(
    cli: Cli, tmp_path: Path, text: str, words: str
) -> None:
    outcome = _admit(cli, tmp_path, text)

    assert outcome.code == 2
    assert words in outcome.err


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("16Gi", "16Gi"),
        ("1536Mi", "1.5Gi"),
        ("100Mi", "100Mi"),
        ("1Gi", "1Gi"),
        ("1k", "1000"),
        ("2k", "1.953Ki"),
    ],
)
def test_memory_is_told_in_the_unit_that_fits(
    cli: Cli, tmp_path: Path, asked: str, shown: str
) -> None:
    outcome = _admit(cli, tmp_path, FITS.replace("8Gi", asked))

    assert f"memory          {shown} of NUMA 0\n" in outcome.out


def test_what_came_back_instead_of_the_settings_is_told_once(cli: Cli, tmp_path: Path) -> None:
    issue = ProbeIssue(probe="kubelet", subject="/etc/k.yaml", reason="Permission denied")
    other = ProbeIssue(probe="rdma", subject="mlx5_0", reason="no port")
    seen = replace(node(), kubelet=None, issues=(issue, issue, other))

    unknown = _admit(cli, tmp_path, FITS + WIDE, seen=seen)
    assert unknown.code == 3
    assert unknown.err == "warning: kubelet: /etc/k.yaml: Permission denied\n"
    known = _admit(cli, tmp_path, FITS, seen=replace(seen, kubelet=node().kubelet))
    assert (known.code, known.err) == (0, "")


_WHOLE = """\
kind: Pod
metadata: {name: whole}
spec:
  resources: {requests: {cpu: 4, memory: 8Gi}}
  containers:
  - name: work
    image: x
    resources:
      limits: {cpu: 4, memory: 8Gi}
"""


@pytest.mark.parametrize(
    ("version", "qos", "said"),
    [
        ("v1.36.3", "Burstable", False),
        ("v1.37.1", "Guaranteed", False),
        (None, "Burstable", True),
    ],
)
def test_a_pod_is_completed_as_the_release_of_the_kubelet_completes_it(
    cli: Cli, tmp_path: Path, version: str | None, qos: str, *, said: bool
) -> None:
    outcome = _admit(cli, tmp_path, _WHOLE, seen=replace(node(), kubelet=kubelet(version=version)))

    assert f"default/whole ({qos})" in outcome.out
    assumed = "the kubelet's version is not known: resources of a whole pod are completed as up to"
    assert (assumed in outcome.err) == said


def test_standard_input_is_read_once(cli: Cli) -> None:
    outcome = cli("admit", "--manifest", "-", "--snapshot", "-")

    assert outcome.code == 2
    assert "standard input is named twice" in outcome.err


def test_a_missing_manifest_is_bad_usage(cli: Cli) -> None:
    assert cli("admit", "--machine", "dgx-h100").code == 2


_TWICE = """\
kind: Pod
metadata: {name: twice, namespace: ml}
spec:
  restartPolicy: Never
  containers:
  - name: work
    image: x
    resources:
      requests: {cpu: 150m}
    resources:
      limits: {nvidia.com/gpu: 4}
  restartPolicy: OnFailure
"""


def test_a_key_that_stands_twice_is_a_warning_and_the_last_counts(cli: Cli, tmp_path: Path) -> None:
    outcome = _admit(cli, tmp_path, _TWICE, "-o", "short")

    path = tmp_path / "pods.yaml"
    assert outcome.code == 0
    assert outcome.out == "✓ ml/twice (BestEffort) admitted\n"
    assert outcome.err.splitlines() == [
        (
            f"warning: {path}: restartPolicy stands twice, lines 4 and 12: kubectl keeps the last, "
            "Never is lost"
        ),
        (
            f"warning: {path}: resources stands twice, lines 8 and 10: kubectl keeps the last, "
            "requests.cpu: 150m is lost"
        ),
    ]


_SPREAD = """\
kind: Pod
metadata: {{name: {name}, namespace: ml, labels: {{app: nccl}}}}
spec:
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: {{app: nccl}}}}}}
  containers: [{{name: work, image: x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
---
"""


def test_anti_affinity_keeps_pods_that_would_fit_together_apart(cli: Cli, tmp_path: Path) -> None:
    two = _SPREAD.format(name="a") + _SPREAD.format(name="b")
    outcome = _admit(cli, tmp_path, two)

    assert outcome.code == 0
    assert "✓ ml/a (BestEffort) admitted\n" in outcome.out
    assert "✓ ml/b (BestEffort) admitted alone; not beside ml/a\n" in outcome.out
    assert "    required anti-affinity keeps it off the node of ml/a\n" in outcome.out
    free = two.replace("{app: nccl}}}\n", "{app: other}}}\n")
    assert "alone" not in _admit(cli, tmp_path, free).out


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("keys-twice", ["default/keys-twice (BestEffort) admitted"]),
        (
            "lws-leader-worker-8gpu",
            [
                "default/serve-leader (Guaranteed) admitted",
                "default/serve (Guaranteed) admitted alone; not beside default/serve-leader",
            ],
        ),
        (
            "pytorchjob-master-worker-8gpu",
            [
                "default/train-master (Guaranteed) admitted",
                (
                    "default/train-worker (Guaranteed) admitted alone: 1 of 3 replicas; "
                    "not beside default/train-master"
                ),
            ],
        ),
        (
            "two-pods-for-two-hosts",
            [
                "default/host-1 (BestEffort) admitted",
                "default/host-2 (BestEffort) admitted alone; not beside default/host-1",
            ],
        ),
    ],
)
def test_manifests_of_others_get_their_answer(
    cli: Cli, field: Path, name: str, verdicts: list[str]
) -> None:
    manifest = str(field / "admit" / f"{name}.yaml")
    source = ("--machine", "dgx-h100", "--policy", "best-effort")
    outcome = cli("admit", *source, "--manifest", manifest, "-o", "short")

    assert (outcome.code, outcome.out.splitlines()) == (0, [f"✓ {it}" for it in verdicts])


_PAIR = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ml, labels: {{app: {name}}}}}
spec:
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: {{app: {beside}}}}}}}
  containers: [{{name: work, image: x, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
---
"""


def test_affinity_keeps_pods_on_one_node_or_is_an_open_question(cli: Cli, tmp_path: Path) -> None:
    first = _PAIR.format(name="a", beside="a", gpus=4)
    outcomes = [
        _admit(cli, tmp_path, first + _PAIR.format(name="b", beside="a", gpus=gpus), "-o", "json")
        for gpus in (4, 5)
    ]
    pods = [json.loads(outcome.out)["pods"][1] for outcome in outcomes]

    assert [outcome.code for outcome in outcomes] == [0, 1]
    assert [(it["admitted"], it["beside"]) for it in pods] == [(True, ["ml/a"]), (False, ["ml/a"])]
    alone = _admit(cli, tmp_path, _PAIR.format(name="b", beside="a", gpus=1))
    assert alone.code == 0
    assert "ml/b: whether required affinity lets it run on this node is not known: " in alone.err
