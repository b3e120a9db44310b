"""Whose a document is: told by keys of its own, never by those that every chart has."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodetopo.formats.document import read_values
from nodetopo.tools.migrate.findings import Finding, Report, Verdict
from nodetopo.tools.migrate.forms import Form, recognised
from nodetopo.tools.migrate.read import report
from tests.tools.migrate.documents import RDMA_CONFIG, nested

SOCKETS = {"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins/"}}


def _report(document: Any) -> Report:
    return report([("input", document if isinstance(document, str) else json.dumps(document))])


def _judged(document: Any) -> tuple[Finding, ...]:
    return tuple(it for it in _report(document).findings if it.line is not None)


def _plugin(container: Mapping[str, Any], volume: Mapping[str, Any] = SOCKETS) -> dict[str, Any]:
    mounted = {"volumeMounts": [{"name": volume["name"], "mountPath": "/x"}], **container}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": [mounted], "volumes": [volume]}}},
    }


def _object(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "a/v1", "kind": kind, "metadata": {"name": "o"}, "spec": spec}


@pytest.mark.parametrize(
    ("document", "program"),
    [
        ({"version": "v1", "mig-configs": {"all-disabled": []}}, "MIG manager"),
        ({"version": "v1", "systemd-services": ["dcgm.service"]}, "MIG manager"),
        ({"version": "v1", "hooks": {"apply-start": []}}, "MIG manager"),
        ({"version": "v1", "vgpu-configs": {"default": []}}, "vGPU"),
        ({"supportedInstanceLabels": {"values": ["a"]}, "tolerations": []}, "EFA"),
        ({"resourceList": [{"resourceName": "a"}]}, "SR-IOV"),
    ],
)
def test_a_file_of_another_program_stays_and_is_named(document: Any, program: str) -> None:
    for text in (document, _config_map(document)):
        (finding,) = _judged(text)
        assert finding.verdict is Verdict.NOT_OURS
        assert program in finding.program


def _config_map(document: Any) -> dict[str, Any]:
    data = {"config.yaml": json.dumps(document)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def test_rules_of_nfd_stay_with_it() -> None:
    (finding,) = _judged([{"name": "a", "matchFeatures": [{"feature": "pci.device"}]}])
    assert (finding.verdict, finding.program) == (Verdict.NOT_OURS, "Node Feature Discovery")
    (finding,) = _judged([{"name": "a"}])
    assert finding.verdict is Verdict.UNKNOWN


def test_the_network_operators_values_are_its_own_but_for_rdma_resources() -> None:
    values = {
        "nfd": {"enabled": True, "deployNodeFeatureRules": True},
        "node-feature-discovery": {"worker": {"tolerations": []}},
        "operator": {"tolerations": []},
    }
    found = _judged(values)
    assert {it.program for it in found} == {"NVIDIA's network operator"}
    assert {it.verdict for it in found} == {Verdict.NOT_OURS}
    rdma = {"deploy": True, "resources": [{"name": "a", "vendors": ["15b3"]}]}
    lost = _report({**values, "rdmaSharedDevicePlugin": rdma})
    assert lost.is_lossless is None
    off = _report({**values, "rdmaSharedDevicePlugin": {**rdma, "deploy": False}})
    assert off.is_lossless is True


@pytest.mark.parametrize("kind", ["NicClusterPolicy", "NicNodePolicy"])
def test_rdma_resources_of_a_policy_are_judged(kind: str) -> None:
    spec = {"ofedDriver": {}, "rdmaSharedDevicePlugin": {"config": RDMA_CONFIG}}
    assert _report(_object(kind, spec)).is_lossless is False
    spec["rdmaSharedDevicePlugin"] = {"config": "see elsewhere"}
    assert _report(_object(kind, spec)).is_lossless is None


@pytest.mark.parametrize(
    "document",
    [
        _object("GPUCluster", {"draDriver": {"version": "v1"}}),
        {"gpuCluster": {"deployCR": True}, "driver": {"enabled": False}},
        {"gpuResourcesEnabledOverride": True, "nvidiaDriverRoot": "/"},
        {"resources": {"gpus": {"enabled": True}}},
        _plugin({"name": "gpus", "command": ["gpu-kubelet-plugin"]}),
    ],
)
def test_where_the_dra_driver_publishes_the_gpus_something_is_lost(document: Any) -> None:
    found = _report(document)
    (lost,) = (it for it in found.findings if it.verdict is Verdict.DIFFERS)
    assert "steps back" in lost.means
    assert found.is_lossless is False


def test_the_dra_driver_for_compute_domains_alone_stays() -> None:
    values = {"resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}}
    assert _report(values).is_lossless is True
    assert _report({"gpuCluster": {"deployCR": False}, "driver": {}}).is_lossless is True


@pytest.mark.parametrize(
    ("container", "verdict"),
    [
        ({"name": "p", "command": ["/bin/nvidia-gpu-device-plugin"]}, Verdict.DIFFERS),
        ({"name": "p", "image": "a/b:1", "args": ["--name=nvidia.com/gpu"]}, Verdict.DIFFERS),
        ({"name": "p", "image": "nvcr.io/nvidia/vgpu-plugin:1"}, Verdict.UNKNOWN),
        ({"name": "p", "image": "amd/gpu-device-plugin"}, Verdict.NOT_OURS),
        ({"name": "p", "image": "nvcr.io/nvidia/fpga-plugin"}, Verdict.NOT_OURS),
        ({"name": "p", "image": "nvcr.io/nvidia/kubevirt-gpu-device-plugin"}, Verdict.NOT_OURS),
        ({"name": "aws-efa-k8s-device-plugin", "args": ["nvidia"]}, Verdict.NOT_OURS),
        ({"name": "nvidia-mig-manager"}, Verdict.NOT_OURS),
    ],
)
def test_another_plugin_of_the_same_resource_is_no_other_program(
    container: Mapping[str, Any], verdict: Verdict
) -> None:
    (finding,) = _judged(_plugin(container))
    assert finding.verdict is verdict


def test_a_program_that_registers_no_resource_is_left_alone() -> None:
    elsewhere = {"name": "other", "hostPath": {"path": "/var/lib/kubelet/pod-resources"}}
    (finding,) = _judged(_plugin({"name": "nvidia-dcgm-exporter"}, elsewhere))
    assert finding.verdict is Verdict.NOT_OURS
    unmounted = _plugin({"name": "nvidia-gpu-monitor", "volumeMounts": []})
    (finding,) = _judged(unmounted)
    assert finding.verdict is Verdict.NOT_OURS


@pytest.mark.parametrize(
    "values",
    [
        {"tolerations": [{"key": "nvidia.com/gpu"}], "nodeSelector": {"a": "b"}},
        {"image": {"repository": "a", "tag": "b"}, "resources": {}, "affinity": {}},
        {"nfd": {"enabled": True}},
        {"migStrategy": "none", "mig-configs": {}},
    ],
)
def test_keys_of_many_charts_tell_no_owner(values: Any) -> None:
    (finding,) = _judged(values)
    assert finding.verdict is Verdict.UNKNOWN
    assert "--as" in finding.means


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ({"migStrategy": "mixed", "tolerations": []}, Form.PLUGIN_VALUES),
        ({"nfd": {"worker": {"tolerations": []}}, "resources": {}}, Form.PLUGIN_VALUES),
        ({"toolkit": {"enabled": False}, "nfd": {"enabled": False}}, Form.OPERATOR_VALUES),
        ({"node-feature-discovery": {"gc": {}}, "image": {}}, Form.OPERATOR_VALUES),
        ({"cdi": {"enabled": True}, "mig": {"strategy": "single"}}, Form.OPERATOR_VALUES),
        ({"master": {"replicaCount": 2}, "image": {}}, Form.NFD_VALUES),
        ({"version": "v1"}, Form.PLUGIN_CONFIG),
        ({"version": "v1", "resources": {"gpus": []}}, Form.PLUGIN_CONFIG),
    ],
)
def test_one_key_of_its_own_tells_the_owner(values: Any, form: Form) -> None:
    (value,) = read_values("input", json.dumps(values), 100)
    assert recognised(value) is form


@pytest.mark.parametrize(
    "path", ["psp.enabled", "operator.validator", "gfd.tolerations", "devicePlugin.nodeSelector"]
)
def test_a_removed_key_of_the_operator_is_called_removed(path: str) -> None:
    policy = _object("ClusterPolicy", {"driver": {"enabled": True}, **nested(path, "x")})
    found = _report(policy)
    (removed,) = (it for it in found.findings if it.verdict is Verdict.IGNORED)
    assert "removed" in removed.means
    assert found.is_lossless is True


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (
            "HelmRelease",
            {
                "chart": {"spec": {"chart": "nvidia-device-plugin"}},
                "values": {"runtimeClassName": "nvidia"},
            },
        ),
        (
            "HelmChart",
            {"chart": "nvdp/nvidia-device-plugin", "valuesContent": "runtimeClassName: nvidia\n"},
        ),
        (
            "Application",
            {
                "source": {
                    "chart": "nvidia-device-plugin",
                    "helm": {"values": "runtimeClassName: nvidia\n"},
                }
            },
        ),
    ],
)
def test_the_name_of_a_chart_tells_whose_values_an_object_has(
    kind: str, spec: Mapping[str, Any]
) -> None:
    (finding,) = _judged(_object(kind, spec))
    assert (finding.verdict, finding.components) == (Verdict.SET, ("nvidia-runtime",))


@pytest.mark.parametrize(
    ("chart", "verdict"),
    [
        ("aws-efa-k8s-device-plugin", Verdict.NOT_OURS),
        ("network-operator", Verdict.NOT_OURS),
        ("dra-driver-nvidia-gpu", Verdict.DIFFERS),
    ],
)
def test_the_name_of_another_programs_chart_tells_it_by_keys_that_all_have(
    chart: str, verdict: Verdict
) -> None:
    spec = {"chart": {"spec": {"chart": chart}}, "values": {"tolerations": ["a"]}}
    (finding,) = _judged(_object("HelmRelease", spec))
    assert finding.verdict is verdict


@pytest.mark.parametrize(
    ("name", "is_lossless", "program"),
    [
        ("efa-values", True, "EFA"),
        ("gpucluster", False, "operator"),
        ("mig-parted", True, "MIG manager"),
        ("other-plugin", False, "another device plugin"),
    ],
)
def test_files_as_people_have_them(field: Path, name: str, is_lossless: bool, program: str) -> None:
    found = _report((field / "migrate" / f"{name}.yaml").read_text("utf-8"))
    assert found.is_lossless is is_lossless
    assert program in found.findings[0].program


_HAMI_FLAGS = ["--config-file=/device-config.yaml", "--mig-strategy=none"]


@pytest.mark.parametrize(
    "container",
    [
        {"image": "docker.io/projecthami/hami:v2.7.0", "command": ["nvidia-device-plugin"]},
        {"image": "a/b:1", "command": ["nvidia-device-plugin", "--disable-core-limit=false"]},
        {"image": "a/b:1", "args": ["nvidia-device-plugin", "--device-split-count=10"]},
    ],
)
def test_hamis_plugin_is_not_nvidias_though_its_command_is(container: dict[str, Any]) -> None:
    container = {"name": "device-plugin", **container}
    container["command"] = [*container.get("command", []), *_HAMI_FLAGS]
    monitor = {"name": "vgpu-monitor", "image": container["image"], "command": ["vGPUmonitor"]}
    document = _plugin(container)
    document["spec"]["template"]["spec"]["containers"].append(monitor)
    found = _report(document)
    (lost,) = (it for it in found.findings if it.verdict is not Verdict.NOT_OURS)
    assert (lost.verdict, lost.program) == (Verdict.DIFFERS, "HAMi's device plugin")
    assert "nvidia.com/gpumem" in lost.means
    assert "of two plugins the kubelet keeps one" in lost.means
    assert found.is_lossless is False


def test_hamis_values_are_its_own() -> None:
    values = {
        "resourceMem": "nvidia.com/gpumem",
        "devicePlugin": {"deviceSplitCount": 10, "migStrategy": "none", "tolerations": []},
        "scheduler": {"kubeScheduler": {"enabled": True}},
    }
    (lost,) = _judged(values)
    assert (lost.verdict, lost.program) == (Verdict.DIFFERS, "HAMi's device plugin")


def test_nvidias_plugin_stays_nvidias() -> None:
    container = {"name": "nvidia-device-plugin-ctr", "command": ["nvidia-device-plugin"]}
    assert {it.program for it in _judged(_plugin(container))} == {"NVIDIA's device plugin"}


@pytest.mark.parametrize(
    ("is_on", "verdict", "components"), [(True, Verdict.SET, ("cdi",)), (False, Verdict.SAME, ())]
)
def test_without_nvidias_plugin_the_component_cdi_writes_the_operators_specification(
    is_on: bool, verdict: Verdict, components: tuple[str, ...]
) -> None:
    values = {"cdi": {"enabled": is_on}, "mig": {"strategy": "single"}}
    found = _judged(values)[0]
    assert (found.verdict, found.components) == (verdict, components)
