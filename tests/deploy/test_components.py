"""What each component and overlay makes of the DaemonSet."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodetopo.cli.main import parser
from nodetopo.cli.settings import given
from nodetopo.deviceplugin.driver_files import LOADER_CACHE
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.resolve import Resolved
from tests.deploy.kustomize import Object, documents, render

DEPLOY = Path(__file__).parents[2] / "deploy" / "daemonset"
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
OVERLAYS = sorted(path.name for path in (DEPLOY / "overlays").iterdir())

ABOUT_THE_CLUSTER = {"alerts", "flow-schema", "network-policy", "own-node", "pod-monitor"}
"""Components that leave the DaemonSet alone and bring objects of their own."""

WITH_RIGHTS = {
    "configz",
    "dra",
    "node-feature",
    "observed-placement",
    "pod-events",
    "pod-placement",
    "rejections",
    "zones",
}
"""Components that change the DaemonSet and bring the rights that this takes."""

ALTERNATIVES = {"nfd-file", "node-feature"}
"""Components of which each says where labels go instead."""

ALONE = [(name,) for name in COMPONENTS]
PAIRS = [
    pair for pair in itertools.permutations(COMPONENTS, 2) if not ALTERNATIVES.issuperset(pair)
]
WRITABLE = ["/run/nodetopo", "/var/lib/kubelet/device-plugins", "/var/lib/nodetopo"]
"""What the base may write on the host."""

ADDED_WRITABLE = {
    "cdi": ["/var/run/cdi"],
    "dra": ["/var/run/cdi", "/var/lib/kubelet/plugins_registry"],
    "nfd-file": ["/etc/kubernetes/node-feature-discovery/features.d"],
    "nccl-hints": ["/run/nodetopo/nccl"],
    "plugins-registry": ["/var/lib/kubelet/plugins_registry"],
}


def with_components(*names: str) -> Object:
    """Return the DaemonSet of the base with components, added in that order."""
    return daemonset(render(DEPLOY / "base", *(DEPLOY / "components" / name for name in names)))


def daemonset(objects: list[Object]) -> Object:
    (found,) = (one for one in objects if one["kind"] == "DaemonSet")
    return found


def pod(of: Object) -> Object:
    spec: Object = of["spec"]["template"]["spec"]
    return spec


def container(of: Object) -> Object:
    (only,) = pod(of)["containers"]
    found: Object = only
    return found


def settings(of: Object) -> Settings:
    """Return what the agent takes from its arguments and variables, once they are filled in."""
    values = {"NODE_NAME": "gpu-1", "POD_IP": "10.0.0.1", "HOST_IP": "10.0.0.2"}
    arguments = [_filled(text, values) for text in container(of)["args"]]
    written = {item["name"]: item.get("value") or "" for item in container(of)["env"]}
    environment = {name: _filled(text, values) for name, text in written.items()} | values
    return Resolved.of(
        flags=given(parser("run").parse_args(arguments)), environment=environment, file=None
    ).settings


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"$({name})", value)
    return text


def host_paths(of: Object, *, writable: bool) -> dict[str, str]:
    """Return container path → path on the host, of the mounts that are *writable* or not."""
    volumes = {
        one["name"]: one["hostPath"]["path"] for one in pod(of)["volumes"] if "hostPath" in one
    }
    return {
        mount["mountPath"]: volumes[mount["name"]]
        for mount in container(of)["volumeMounts"]
        if mount["name"] in volumes and bool(mount.get("readOnly")) is not writable
    }


def is_below_one(path: Path, mounted: dict[str, str]) -> bool:
    return any(path.is_relative_to(one) for one in mounted)


@pytest.mark.parametrize("names", [(), *ALONE, *PAIRS], ids="+".join)
def test_components_combine_in_any_order(names: tuple[str, ...]) -> None:
    found = with_components(*names)
    spec, mounts = pod(found), container(found)["volumeMounts"]
    paths, volumes = [one["mountPath"] for one in mounts], [one["name"] for one in spec["volumes"]]
    assert (len(set(paths)), len(set(volumes))) == (len(paths), len(volumes))
    assert {one["name"] for one in mounts} == set(volumes)
    variables = [one["name"] for one in container(found)["env"]]
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_describes_itself(name: str) -> None:
    text = (DEPLOY / "components" / name / "kustomization.yaml").read_text("utf-8")
    assert text.startswith("# ")


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_changes_the_daemonset_or_adds_to_the_cluster(name: str) -> None:
    base, changed = render(DEPLOY / "base"), render(DEPLOY / "base", DEPLOY / "components" / name)
    assert (daemonset(changed) != daemonset(base)) == (name not in ABOUT_THE_CLUSTER)
    assert (len(changed) > len(base)) == (name in ABOUT_THE_CLUSTER | WITH_RIGHTS)


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_agent_takes_what_a_component_tells_it(name: str) -> None:
    found = settings(with_components(name))
    assert (found.node_name, found.metrics_address) == ("gpu-1", "[10.0.0.1]:9430")


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_makes_no_more_of_the_host_writable_than_it_needs(name: str) -> None:
    added = ADDED_WRITABLE.get(name, [])
    found = host_paths(with_components(name), writable=True)
    assert sorted(found.values()) == sorted([*WRITABLE, *added])


@pytest.mark.parametrize("name", COMPONENTS)
def test_only_the_kernel_log_needs_privilege_and_only_mig_a_capability(name: str) -> None:
    context = container(with_components(name))["securityContext"]
    assert context.get("privileged", False) == (name == "kernel-log")
    added = context.get("capabilities", {}).get("add", [])
    assert added == (["SYS_ADMIN"] if name in {"mig", "mig-access"} else [])


@pytest.mark.parametrize("order", [("kernel-log", "mig"), ("mig", "kernel-log")])
def test_privilege_asks_for_nothing_that_the_api_server_refuses(order: tuple[str, ...]) -> None:
    context = container(with_components(*order))["securityContext"]
    assert (context["privileged"], "allowPrivilegeEscalation" in context) == (True, False)


def test_the_state_of_health_outlives_the_container() -> None:
    base = with_components()
    file = settings(base).health_file
    assert file is not None
    assert is_below_one(file, host_paths(base, writable=True))


def test_dra_writes_cdi_and_registers_with_the_plugin_watcher() -> None:
    found = with_components("dra")
    said = settings(found)
    assert (said.dra, said.cdi_spec) == (True, "write")
    assert is_below_one(said.plugins_registry_dir, host_paths(found, writable=True))
    classes = [
        it
        for it in render(DEPLOY / "base", DEPLOY / "components" / "dra")
        if it["kind"] == "DeviceClass"
    ]
    assert [it["metadata"]["name"] for it in classes] == [
        "gpu.nodetopo.io",
        "gpus.nodetopo.io",
        "mig.nodetopo.io",
        "admin.nodetopo.io",
    ]


def test_a_rollout_with_dra_starts_the_new_pod_before_the_old_one_ends() -> None:
    strategy = with_components("dra")["spec"]["updateStrategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0},
    }


def test_the_plugin_watchers_directory_is_where_the_agent_looks_for_it() -> None:
    found = with_components("plugins-registry")
    assert settings(found).registration == "watcher"
    assert str(settings(found).plugins_registry_dir) in host_paths(found, writable=True)


def test_named_configs_are_read_from_the_config_map() -> None:
    found = with_components("named-config")
    (mount,) = (one for one in container(found)["volumeMounts"] if one["name"] == "configs")
    assert mount["mountPath"] == str(settings(found).config_dir)


def test_a_config_map_is_mounted_so_that_its_changes_arrive() -> None:
    # The kubelet does not renew what is mounted by subPath.
    mounts = container(with_components("named-config"))["volumeMounts"]
    assert [one for one in mounts if "subPath" in one] == []


def test_the_specification_is_written_where_the_runtime_reads_it() -> None:
    found = with_components("cdi")
    told = settings(found)
    seen = told.host_root / told.cdi_spec_dir.relative_to("/")
    assert told.cdi_spec == "write"
    assert host_paths(found, writable=True)[str(seen)] == str(told.cdi_spec_dir)


def test_the_hook_and_the_drivers_files_are_seen_where_the_host_has_them() -> None:
    found = with_components("cdi")
    told, seen = settings(found), host_paths(with_components("cdi"), writable=False)
    assert seen["/host/usr"] == "/usr"
    assert is_below_one(told.host_root / told.cdi_hook.relative_to("/"), seen)


def test_the_loaders_cache_is_seen_where_the_agent_looks_for_it() -> None:
    found = with_components("cdi", "loader-cache")
    seen = str(settings(found).host_root / LOADER_CACHE[1:])
    assert host_paths(found, writable=False)[seen] == LOADER_CACHE
    (volume,) = (one for one in pod(found)["volumes"] if one["name"] == "loader-cache")
    assert volume["hostPath"]["type"] == "File"  # nothing may make a directory of it


@pytest.mark.parametrize("name", ["host-devices", "cdi"])
def test_device_nodes_are_seen_where_the_agent_looks_for_them(name: str) -> None:
    found = with_components(name)
    told = settings(found)
    assert (told.driver_root, told.dev_root) == (Path("/"), None)
    assert host_paths(found, writable=False)[str(told.host_root / "dev")] == "/dev"


def test_the_topology_for_nccl_is_written_to_the_host() -> None:
    found = with_components("nccl-hints")
    told = settings(found)
    seen = told.host_root / told.nccl_hints_dir.relative_to("/")
    assert told.nccl_hints
    assert host_paths(found, writable=True)[str(seen)] == str(told.nccl_hints_dir)


def test_the_kernel_log_is_read_from_the_device() -> None:
    assert str(settings(with_components("kernel-log")).kernel_log) == "/dev/kmsg"


def test_the_feature_file_is_written_where_nfd_reads_it() -> None:
    found = with_components("nfd-file")
    told = settings(found)
    assert told.label_outputs == ("nfd-file",)
    assert host_paths(found, writable=True)[str(told.nfd_file.parent)] == str(told.nfd_file.parent)


def test_the_node_feature_object_has_an_owner_that_is_found_through_the_pod() -> None:
    found = with_components("node-feature")
    assert settings(found).label_outputs == ("node-feature",)
    fields = {one["name"]: one.get("valueFrom") for one in container(found)["env"]}
    assert fields["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_the_kubelet_is_asked_on_its_node_with_no_right_to_run_commands() -> None:
    found = settings(with_components("configz"))
    assert (found.kubelet_url, found.kubelet_insecure_tls) == ("https://10.0.0.2:10250", True)
    objects = render(DEPLOY / "base", DEPLOY / "components" / "configz")
    rules = [rule for one in objects if one["kind"] == "ClusterRole" for rule in one["rules"]]
    assert {name for rule in rules for name in rule["resources"]} == {
        "nodes",
        "pods",
        "nodes/configz",
        "nodes/metrics",
        "resourceslices",
        "deviceclasses",
    }


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("zones", "publish_zones"),
        ("observed-placement", "annotate_pods"),
        ("pod-placement", "pod_policies"),
        ("pod-placement", "tell_pods"),
    ],
)
def test_a_component_that_brings_rights_asks_for_their_use(name: str, setting: str) -> None:
    assert getattr(settings(with_components(name)), setting)
    assert not getattr(settings(with_components()), setting)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_renders_to_all_objects_of_the_base(name: str) -> None:
    kinds = [one["kind"] for one in render(DEPLOY / "overlays" / name)]
    base = [one["kind"] for one in render(DEPLOY / "base")]
    assert kinds[: len(base)] == base
    assert set(kinds[len(base) :]) <= {
        "NetworkPolicy",
        "ResourceQuota",
        "SecurityContextConstraints",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }


@pytest.mark.parametrize("name", ["beside", "labels-only"])
def test_an_overlay_without_device_plugin_writes_nothing_of_the_kubelets(name: str) -> None:
    found = daemonset(render(DEPLOY / "overlays" / name))
    assert settings(found).offer_gpus == "never"
    assert list(host_paths(found, writable=True).values()) == ["/run/nodetopo", "/var/lib/nodetopo"]


def test_beside_gfd_no_key_of_its_is_written() -> None:
    assert not settings(daemonset(render(DEPLOY / "overlays" / "beside"))).publish_gfd_labels
    assert settings(daemonset(render(DEPLOY / "overlays" / "labels-only"))).publish_gfd_labels


def test_the_drop_in_hands_devices_over_as_nvidias_plugin_does_by_default() -> None:
    found = settings(daemonset(render(DEPLOY / "overlays" / "drop-in")))
    assert [str(one) for one in found.device_list_strategy] == ["envvar"]


def test_nvidias_config_map_takes_the_place_of_ours() -> None:
    found: Any = daemonset(render(DEPLOY / "overlays" / "nvidia-config"))
    before = with_components("hand-over", "named-config")
    (ours,) = (one for one in pod(before)["volumes"] if one["name"] == "configs")
    ours["configMap"]["name"] = "nvidia-plugin-configs"
    container(before)["env"].append({"name": "NODETOPO_DEFAULT_CONFIG", "value": ""})
    assert found == before
    assert settings(found).default_config is None


def test_mig_devices_can_be_seen_without_a_strategy_that_wins_over_the_config_map() -> None:
    found = with_components("named-config", "mig-access")
    assert settings(found).mig_strategy == "none"
    assert settings(with_components("mig")).mig_strategy == "mixed"


def test_a_kustomization_of_ours_moves_no_object_to_another_namespace() -> None:
    # Events about a Node are in the namespace `default`, and so must be the right to write them.
    moved = [
        path for path in DEPLOY.rglob("kustomization.yaml") if "namespace" in documents(path)[0]
    ]
    assert moved == []
