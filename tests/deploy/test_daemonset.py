"""The manifests: complete, and without privilege."""

from pathlib import Path
from typing import Any

import pytest

from nodetopo.model.operator_labels import DEVICE_PLUGIN
from tests.deploy.kustomize import documents

DEPLOY = Path(__file__).parents[2] / "deploy" / "daemonset"
BASE = DEPLOY / "base"
FOLDERS = sorted(path.parent for path in DEPLOY.rglob("kustomization.yaml"))


def pod_spec() -> dict[str, Any]:
    (daemonset,) = documents(BASE / "daemonset.yaml")
    spec: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod_spec()["containers"]
    found: dict[str, Any] = only
    return found


def mounted(path: str) -> dict[str, Any]:
    (mount,) = [item for item in container()["volumeMounts"] if item["mountPath"] == path]
    found: dict[str, Any] = mount
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(DEPLOY)))
def test_a_kustomization_refers_to_what_exists(folder: Path) -> None:
    (kustomization,) = documents(folder / "kustomization.yaml")
    named = kustomization.get("resources", []) + kustomization.get("components", [])
    assert [name for name in named if not (folder / name).exists()] == []


def test_the_base_lists_all_its_files() -> None:
    (kustomization,) = documents(BASE / "kustomization.yaml")
    files = {path.name for path in BASE.iterdir()} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files


def test_the_account_may_do_only_what_the_agent_does() -> None:
    granted = {
        (role["metadata"].get("namespace", "everywhere"), resource, verb)
        for role in documents(BASE / "rbac.yaml")
        for rule in role.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        ("everywhere", "nodes", "get"),
        ("everywhere", "nodes", "patch"),
        ("everywhere", "nodes", "watch"),
        ("everywhere", "pods", "list"),
        ("everywhere", "resourceslices", "list"),
        ("everywhere", "resourceslices", "watch"),
        ("everywhere", "deviceclasses", "list"),
        ("default", "events", "create"),
        ("default", "events", "patch"),
    }


@pytest.mark.parametrize("first", [0, 2], ids=["of the cluster", "of the namespace"])
def test_a_binding_gives_the_role_before_it_to_the_account_of_the_pod(first: int) -> None:
    role, binding = documents(BASE / "rbac.yaml")[first : first + 2]
    (account,) = documents(BASE / "serviceaccount.yaml")
    place, owner = role["metadata"], account["metadata"]
    (subject,) = binding["subjects"]
    assert binding["metadata"].get("namespace") == place.get("namespace")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (role["kind"], place["name"])
    assert (subject["name"], subject["namespace"]) == (owner["name"], owner["namespace"])


def test_the_pod_runs_under_that_account() -> None:
    (account,) = documents(BASE / "serviceaccount.yaml")
    assert pod_spec()["serviceAccountName"] == account["metadata"]["name"]


def test_the_container_is_root_without_capabilities() -> None:
    assert container()["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_pod_shares_no_namespace_with_the_host() -> None:
    assert {"hostPID", "hostIPC", "hostNetwork"} & pod_spec().keys() == set()


def test_system_calls_are_filtered() -> None:
    assert pod_spec()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_the_plugin_directory_and_its_own_of_the_host_are_writable() -> None:
    on_host = {volume["name"] for volume in pod_spec()["volumes"] if "hostPath" in volume}
    writable = [
        mount["mountPath"]
        for mount in container()["volumeMounts"]
        if mount["name"] in on_host and not mount.get("readOnly")
    ]
    assert writable == [
        "/var/lib/kubelet/device-plugins",
        "/run/nodetopo",
        "/var/lib/nodetopo",
    ]


def test_mounts_inside_sysfs_are_read_only_as_well() -> None:
    assert mounted("/host/sys")["recursiveReadOnly"] == "IfPossible"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(DEPLOY)))
def test_the_secrets_beside_the_kubelets_files_are_never_mounted(folder: Path) -> None:
    text = "".join(path.read_text("utf-8") for path in folder.glob("*.yaml"))
    lines = {line.strip().rstrip("/") for line in text.splitlines()}
    assert lines & {"path: /var/lib/kubelet", "path: /"} == set()


def test_every_mount_has_its_volume() -> None:
    mounts = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod_spec()["volumes"]}


def test_a_rollout_never_runs_two_agents_on_a_node() -> None:
    (daemonset,) = documents(BASE / "daemonset.yaml")
    assert daemonset["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"},
    }


def test_the_agent_is_scheduled_before_the_pods_that_need_it() -> None:
    assert pod_spec()["priorityClassName"] == "system-node-critical"


def test_the_pod_leaves_a_node_whose_device_plugin_the_gpu_operator_takes_away() -> None:
    (term,) = pod_spec()["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {
            "key": DEVICE_PLUGIN,
            "operator": "NotIn",
            "values": ["false", "paused-for-driver-upgrade", "paused-for-mig-change"],
        }
    ]


def test_memory_is_limited_and_cpu_is_not() -> None:
    assert container()["resources"] == {
        "requests": {"cpu": "20m", "memory": "64Mi"},
        "limits": {"memory": "256Mi"},
    }


@pytest.mark.parametrize(
    ("probe", "path"), [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
)
def test_a_probe_asks_where_the_agent_answers(probe: str, path: str) -> None:
    (port,) = container()["ports"]
    asked = container()[probe]["httpGet"]
    assert (asked, f"--metrics-address=[$(POD_IP)]:{port['containerPort']}") == (
        {"path": path, "port": port["name"]},
        container()["args"][2],
    )


def test_a_restart_of_the_kubelet_does_not_make_the_pod_unready() -> None:
    probe = container()["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 30  # seconds
