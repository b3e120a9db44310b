"""The chart's value ``distribution`` renders what the overlays of kustomize do."""

import pytest

from scripts.generators.distributions import distributions
from tests.deploy.kustomize import render as kustomize
from tests.lab.helm.chart import Object, render
from tests.lab.test_helm_chart import DEPLOY, DISTRIBUTIONS, PLAIN, assert_same, daemonset

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_distribution_is_the_same(distribution: str) -> None:
    values = {**PLAIN, "components.handOver": True, "distribution": distribution}
    assert_same(render(values), kustomize(DEPLOY / "overlays" / distribution))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_distribution_replaces_the_places_of_kubeadm(distribution: str) -> None:
    usual = {"components.kubeletConfig": True, "components.hostAudit": True}
    paths = host_paths({**usual, "distribution": distribution})
    assert not {"/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d"} & paths
    told = {mount["path"] for mount in distributions()[distribution]["mounts"]}
    assert {"/etc/containerd", "/etc/crio"} & paths <= told


def host_paths(values: Object) -> set[str]:
    volumes = daemonset(values)["spec"]["template"]["spec"]["volumes"]
    return {one["hostPath"]["path"] for one in volumes if "hostPath" in one}


def test_values_win_over_a_distribution() -> None:
    values = {
        "distribution": "k0s",
        "kubeletRootDir": "/data/kubelet",
        "runtimeClassName": "gpus",
    }
    assert "/data/kubelet/pod-resources" in host_paths(values)
    assert daemonset(values)["spec"]["template"]["spec"]["runtimeClassName"] == "gpus"
    offers = {"distribution": "bottlerocket", "settings": {"offer-gpus": "always"}}
    (container,) = daemonset(offers)["spec"]["template"]["spec"]["containers"]
    assert {"name": "NODETOPO_OFFER_GPUS", "value": "always"} in container["env"]
    (plugins,) = (
        one
        for one in container["volumeMounts"]
        if one["mountPath"] == "/var/lib/kubelet/device-plugins"
    )
    assert not plugins.get("readOnly")


@pytest.mark.parametrize(
    ("component", "allowed"),
    [
        ("hostAudit", {"allowHostPID": True}),
        ("mig", {"allowedCapabilities": ["SYS_ADMIN"]}),
        ("kernelLog", {"allowPrivilegedContainer": True, "requiredDropCapabilities": []}),
    ],
)
def test_openshift_allows_what_a_component_asks_for(component: str, allowed: Object) -> None:
    def constraints(values: Object) -> Object:
        objects = render({"distribution": "openshift", **values})
        (found,) = (one for one in objects if one["kind"] == "SecurityContextConstraints")
        return found

    found, before = constraints({f"components.{component}": True}), constraints({})
    assert {key: found[key] for key in allowed} == allowed
    assert all(before[key] != value for key, value in allowed.items())
    assert found["users"] == ["system:serviceaccount:nodetopo:nodetopo"]
