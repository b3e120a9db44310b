"""What a document is, which line a verdict is on, and that hostile documents do no harm."""

import json
from typing import Any

import pytest

from nodetopo.errors import InputError
from nodetopo.formats.document import MAX_MIGRATED_NODES
from nodetopo.tools.migrate.findings import Finding, Verdict
from nodetopo.tools.migrate.forms import Form
from nodetopo.tools.migrate.read import report
from tests.tools.migrate.documents import (
    NFD_KEYS,
    NFD_WORKER_KEYS,
    OPERATOR_KEYS,
    PLUGIN_KEYS,
    RDMA_CONFIG,
    nested,
    pod,
)

SECRET = "hunter2-of-a-person"


def _judged(text: str, form: Form | None = None) -> tuple[Finding, ...]:
    return report([("input", text)], form).findings


@pytest.mark.parametrize(
    ("form", "path"),
    [
        *((Form.PLUGIN_VALUES, path) for path in PLUGIN_KEYS),
        *((Form.OPERATOR_VALUES, path) for path in OPERATOR_KEYS),
        *((Form.NFD_VALUES, path) for path in NFD_KEYS),
        *((Form.NFD_WORKER, path) for path in NFD_WORKER_KEYS),
    ],
)
def test_every_documented_key_has_a_verdict_and_a_wrong_one_is_unknown(
    form: Form, path: str
) -> None:
    (nothing,) = (it for it in _judged(json.dumps(nested(path, None)), form) if it.line)
    assert nothing.verdict is Verdict.IGNORED
    wrong = f"{path}x"
    (finding,) = (it for it in _judged(json.dumps(nested(wrong, SECRET)), form) if it.line)
    assert finding.verdict is Verdict.UNKNOWN
    assert SECRET not in finding.written + finding.means
    assert "did you mean" in finding.means


def test_rdma_resources_are_served_from_the_same_file() -> None:
    found = _judged(RDMA_CONFIG)
    differs = {it.written: it.means for it in found if it.verdict is Verdict.DIFFERS}
    assert list(differs) == [
        "configList[0].resourceName: shared_a",
        "configList[1].resourceName: shared_b",
    ]
    means = list(differs.values())
    assert "example.com/shared_a" in means[0]
    assert all("without NUMA nodes" in text and "`numa: true`" in text for text in means)
    assert "rdma/shared_b" in means[1]
    assert {it.verdict for it in found} == {Verdict.DIFFERS, Verdict.SET, Verdict.IGNORED}
    assert {it.components for it in found if it.verdict is not Verdict.IGNORED} == {("rdma",)}


@pytest.mark.parametrize(
    "entry",
    [
        {"_comment": "x"},
        {"rootDevices": ["0000:18:00.0"]},
        {"selectors": {"vendors": ["15b3"], "isRdma": True}},
    ],
)
def test_unknown_keys_of_rdma_resources_are_ignored_there_and_here(entry: dict[str, Any]) -> None:
    document = {
        "configList": [
            {"resourceName": "a", "rdmaHcaMax": 9, "selectors": {"vendors": ["15b3"]}, **entry}
        ]
    }
    (unknown,) = [it for it in _judged(json.dumps(document)) if "no key of" in it.means]
    assert unknown.verdict is Verdict.IGNORED


def test_keys_of_ours_in_the_file_of_rdma_resources_are_the_same() -> None:
    ours = {"mode": "shared", "issm": False, "numa": True, "selectors": {"hcas": ["mlx5_0"]}}
    document = {"configList": [{"resourceName": "a", "rdmaHcaMax": 9, **ours}]}
    same = [it.written for it in _judged(json.dumps(document)) if it.verdict is Verdict.SAME]
    assert [text.partition(":")[0].removeprefix("configList[0].") for text in same] == [
        "mode",
        "issm",
        "numa",
        "selectors.hcas",
    ]


def test_lines_are_those_of_the_file_also_inside_a_config_map() -> None:
    text = """\
# first
apiVersion: v1
kind: ConfigMap
metadata:
  name: configs
data:
  other.sh: echo
  mixed.yaml: |

    # a comment
    version: v1
    flags:
      migStrategy: mixed
  "json": "{\\"configList\\": [{\\"resourceName\\": \\"a\\"}]}"
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin}
spec:
  template:
    spec:
      runtimeClassName: nvidia
      containers:
        - name: nvidia-device-plugin-ctr
          args:
            - --mig-strategy=mixed
            - --pass-device-specs
          env:
            - name: DEVICE_LIST_STRATEGY
              value: envvar
"""
    found = [(it.line, it.written) for it in _judged(text)]
    assert found == [
        (7, "configs: other.sh"),
        (11, "version: v1"),
        (13, "flags.migStrategy: mixed"),
        (14, "configList[0].resourceName: a"),
        (22, "DaemonSet plugin: runtimeClassName: nvidia"),
        (26, "--mig-strategy=mixed"),
        (27, "--pass-device-specs=true"),
        (29, "DEVICE_LIST_STRATEGY=envvar"),
        (None, "shared-devices-allocation-policy is not set"),
    ]


def test_a_secret_is_never_repeated() -> None:
    secret = json.dumps(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": SECRET}}
    )
    plugin = pod(
        args=[f"--token={SECRET}", "--key", SECRET, f"--kubeconfig={SECRET}"],
        env={"PASSWORD": SECRET, "KUBECONFIG": SECRET},
    )
    values = json.dumps({"master": {"extraEnvs": SECRET, "password": SECRET}})
    found = [it for text in (secret, plugin, values) for it in _judged(text)]
    assert len(found) > 8
    assert not [it for it in found if SECRET in f"{it.written}{it.means}{it.settings}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: {{ .Values.migStrategy }}\n", 2),
        ('{{- include "chart.labels" . }}\n', 1),
        ("{{- if .Values.gfd.enabled }}\nkind: DaemonSet\n", 1),
    ],
)
def test_a_template_of_a_chart_is_refused_with_a_cure(text: str, line: int) -> None:
    with pytest.raises(InputError, match=f"input:{line}.*helm template"):
        _judged(text)


def test_templates_of_labels_in_nfds_configuration_are_no_chart() -> None:
    text = 'sources:\n  custom:\n  - labelsTemplate: "{{ range .system.osrelease }}a{{ end }}"\n'
    assert [it.verdict for it in _judged(text)] == [Verdict.NOT_OURS]


@pytest.mark.parametrize(
    "text",
    [
        "a: [" * 100,
        "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
        + "".join(
            f"{n}: &{n} [{','.join([f'*{m}'] * 8)}]\n" for m, n in zip("bcde", "cdef", strict=True)
        )
        + "z: [*f,*f]\n",
        "a: &a\n  b: *a\n",
        "\t\tx",
        "x" * (3 << 20),
    ],
    ids=["deep", "bomb", "itself", "tab", "long"],
)
def test_a_hostile_document_is_refused_with_a_cure(text: str) -> None:
    with pytest.raises(InputError) as refused:
        _judged(text)
    assert refused.value.cure


def test_many_unknown_keys_are_refused_before_they_are_compared() -> None:
    keys = "".join(f"k{number}: 1\n" for number in range(MAX_MIGRATED_NODES))
    with pytest.raises(InputError, match="more than"):
        _judged(f"migStrategy: none\n{keys}")


def test_a_configuration_larger_than_the_daemon_reads_is_not_supported() -> None:
    text = "version: v1\nflags:\n  migStrategy: single\n" + "# comment\n" * 7000 + "sharing: {}\n"
    verdicts = [it.verdict for it in _judged(text) if it.line is not None]
    assert verdicts == [Verdict.NOT_SUPPORTED]


def test_other_objects_and_nodetopo_itself_are_left_alone() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    ours = json.loads(pod())
    ours["spec"]["template"]["spec"]["containers"][0] |= {"name": "nodetopo", "image": "nodetopo"}
    other = json.loads(pod())
    other["spec"]["template"]["spec"]["containers"][0] |= {"name": "web", "image": "web:1"}
    whole = {"apiVersion": "v1", "kind": "List", "items": [service, ours, other]}
    assert [it.verdict for it in _judged(json.dumps(whole))] == [Verdict.NOT_OURS] * 3


def test_what_is_nothing_known_is_said_to_be_unknown() -> None:
    (finding,) = _judged("colour: blue\n")
    assert finding.verdict is Verdict.UNKNOWN
    assert "--as" in finding.means


def test_the_operators_objects_are_read_as_its_values_are() -> None:
    values = {
        "mig": {"strategy": "mixed"},
        "devicePlugin": {"env": [{"name": "GDS_ENABLED", "value": "true"}]},
    }
    policy = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": values,
    }
    nic = {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": "n"},
        "spec": {"rdmaSharedDevicePlugin": {"config": RDMA_CONFIG}, "ofedDriver": {}},
    }
    found = {it.written: it for text in (policy, nic) for it in _judged(json.dumps(text))}
    assert found["mig.strategy: mixed"].components == ("mig-access",)
    assert found["GDS_ENABLED=true"].settings == {"gds": "true"}
    assert found["configList[0].resourceName: shared_a"].verdict is Verdict.DIFFERS
    assert found["ofedDriver"].verdict is Verdict.NOT_OURS


def test_two_values_of_one_setting_are_a_difference() -> None:
    other = pod(env={"MIG_STRATEGY": "mixed"}).replace(
        "nvidia-device-plugin-ctr", "gpu-feature-discovery"
    )
    found = report([("a", pod(env={"MIG_STRATEGY": "single"})), ("b", other)]).findings
    (finding,) = (it for it in found if it.verdict is Verdict.DIFFERS and it.line)
    assert finding.file == "b"
    assert "two values" in finding.means


def test_variables_that_gpu_feature_discovery_has_of_its_own_are_nvidias_settings() -> None:
    text = pod(env={"GFD_MIG_STRATEGY": "mixed", "GFD_FAIL_ON_INIT_ERROR": "true"})
    found = {it.written: it for it in _judged(text.replace("device-plugin-ctr", "gfd"))}
    assert found["GFD_MIG_STRATEGY=mixed"].settings == {"mig-strategy": "mixed"}
    assert found["GFD_FAIL_ON_INIT_ERROR=true"].verdict is Verdict.DIFFERS


def test_a_value_that_comes_from_elsewhere_is_unknown() -> None:
    whole = json.loads(pod(env={"MIG_STRATEGY": ""}))
    (variable,) = whole["spec"]["template"]["spec"]["containers"][0]["env"]
    del variable["value"]
    variable["valueFrom"] = {"configMapKeyRef": {"name": "a", "key": "b"}}
    (finding,) = (it for it in _judged(json.dumps(whole)) if it.written == "MIG_STRATEGY")
    assert finding.verdict is Verdict.UNKNOWN


def test_flags_may_have_their_value_in_the_next_argument() -> None:
    args = ["-mig-strategy", "mixed", "--pass-device-specs", "--device-list-strategy", "envvar"]
    found = [it.written for it in _judged(pod(args=args)) if it.line is not None]
    assert found == [
        "-mig-strategy=mixed",
        "--pass-device-specs=true",
        "--device-list-strategy=envvar",
    ]
