"""The chart renders what kustomize does, and refuses what it does not know."""

import copy
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import nodetopo
from nodetopo.cli.main import parser
from nodetopo.cli.settings import given
from nodetopo.components.rdma.pools_file import parse
from nodetopo.components.rdma.settings import RDMA_USUAL_PLACE
from nodetopo.kernel.settings.resolve import Resolved
from scripts.generators.chart import OPEN
from scripts.generators.chart import values as defaults
from scripts.generators.distributions import distributions
from tests.deploy.kustomize import render as kustomize
from tests.lab.helm.chart import CHART, KUBERNETES, Object, helm, is_hook, render, template

pytestmark = pytest.mark.lab

DEPLOY = CHART.parent / "daemonset"
DISTRIBUTIONS = sorted(distributions())
OVERLAYS = sorted({path.name for path in (DEPLOY / "overlays").iterdir()} - {*DISTRIBUTIONS})

PLAIN: Object = {
    "namespace.create": True,
    "policy.create": False,
    "components.handOver": False,
    "gpuNodesOnly": False,
}
"""What makes of the chart's defaults the base of kustomize."""

AS_VALUES: dict[str, Object] = {
    "gpu-nodes": {"gpuNodesOnly": True},
    "network-policy": {"networkPolicy.create": True},
    "nvidia-runtime": {"runtimeClassName": "nvidia"},
    "own-node": {"policy.create": True},
    "pod-monitor": {"metrics.podMonitor.create": True},
    "alerts": {"metrics.rules.create": True},
}
"""Components of kustomize that are values of another name."""

COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())

OF_A_RELEASE = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}
"""Labels that tell releases apart, or the objects of one from others."""

MERGED_BY = {"env": "name", "volumeMounts": "mountPath", "volumes": "name"}


def as_values(component: str) -> Object:
    """Return the values that stand for a *component* of kustomize."""
    camel = re.sub("-(.)", lambda found: found[1].upper(), component)
    return AS_VALUES.get(component) or {f"components.{camel}": True}


def plain(objects: Iterable[Object]) -> dict[tuple[str, str, str], Any]:
    """Return *objects* by kind and name, without what is a release's or has no order."""
    found = {}
    for document in copy.deepcopy([one for one in objects if not is_hook(one)]):
        metadata = document["metadata"]
        key = (document["kind"], metadata.get("namespace", ""), metadata["name"])
        assert key not in found, f"twice: {key}"
        found[key] = _plain(document)
    return found


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        inner = {key: _plain(one, key) for key, one in value.items()}
        if name in {"labels", "matchLabels", "selector"}:
            inner = {key: one for key, one in inner.items() if key not in OF_A_RELEASE}
        if name == "metadata":  # what helm does with the object
            inner.pop("annotations", None)
        if name == "matchConditions":
            inner.pop("expression")  # the chart knows its namespace; see the test of the binding
        # Lists of rules and of policies are of Kubernetes' own order; labels may be left empty.
        return {key: one for key, one in inner.items() if one not in ({}, None)}
    if isinstance(value, list):
        items = [_plain(one, name) for one in value]
        if name in MERGED_BY and not all(isinstance(one, str) for one in items):
            return sorted(items, key=lambda one: str(one[MERGED_BY[name]]))
        return sorted(items) if name == "args" else items
    return value


def assert_same(chart: Iterable[Object], manifests: Iterable[Object]) -> None:
    ours, theirs = plain(chart), plain(manifests)
    assert ours.keys() == theirs.keys()
    for key, document in theirs.items():
        assert ours[key] == document, key


def test_pools_of_hcas_given_as_values_are_the_file_that_the_agent_reads() -> None:
    pool = {"resourceName": "a", "rdmaHcaMax": 8, "selectors": {"vendors": ["15b3"]}}
    objects = render({"components.rdma": True, "rdma.config": {"configList": [pool]}})
    (config,) = [one for one in objects if "config.json" in (one.get("data") or {})]
    parsed = parse("config.json", config["data"]["config.json"])
    assert [pool.resource for pool in parsed.pools] == ["rdma/a"]
    (daemon,) = [one for one in objects if one["kind"] == "DaemonSet"]
    pod = daemon["spec"]["template"]["spec"]
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    name = config["metadata"]["name"]
    assert volumes["rdma-devices"]["configMap"] == {"name": name, "optional": True}
    assert Path(mounts["rdma-devices"]) == RDMA_USUAL_PLACE.parent


def test_the_chart_passes_helms_own_checks() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_has_the_version_of_the_agent() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == nodetopo.__version__


def test_the_base_is_the_same() -> None:
    assert_same(render(PLAIN), kustomize(DEPLOY / "base"))


def test_the_default_is_the_same_but_for_the_policies() -> None:
    values = {"namespace.create": True, "policy.create": False, "gpuNodesOnly": False}
    assert_same(render(values), kustomize(DEPLOY))


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_is_the_same(component: str) -> None:
    values = {**PLAIN, **as_values(component)}
    assert_same(render(values), kustomize(DEPLOY / "base", DEPLOY / "components" / component))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_the_same(overlay: str) -> None:
    chosen = CHART / "ci" / f"{overlay}-values.yaml"
    objects = render({"namespace.create": True, "gpuNodesOnly": False}, "--values", chosen)
    assert_same(objects, kustomize(DEPLOY / "overlays" / overlay))


def test_every_file_of_values_is_that_of_an_overlay() -> None:
    names = {path.name for path in (CHART / "ci").iterdir()}
    assert names == {f"{overlay}-values.yaml" for overlay in OVERLAYS}


def test_components_are_the_same_all_together() -> None:
    # Not beside node-feature; and the chart opens the kubelet's port where configz asks for it.
    chosen = [name for name in COMPONENTS if name not in {"nfd-file", "network-policy"}]
    values = dict(PLAIN)
    for name in chosen:
        values |= as_values(name)
    # By kustomize, the one that makes the container privileged comes last.
    chosen.sort(key="kernel-log".__eq__)
    assert_same(
        render(values), kustomize(DEPLOY / "base", *(DEPLOY / "components" / one for one in chosen))
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"image.tagg": "1"}, "additional properties 'tagg' not allowed"),
        ({"components.cdi": "yes"}, "got string, want boolean"),
        ({"settings.placement-polcy": "best"}, "'placement-polcy' not allowed"),
        ({"settings.mig-strategy": "mixd"}, "must be one of 'none', 'single', 'mixed'"),
        ({"settings.scan-interval": "5 minutes"}, "does not match pattern"),
        ({"livenessProbe.httpGet": {}}, "additional properties 'httpGet' not allowed"),
        ({"updateStrategy.type": "Recreate"}, "must be one of 'RollingUpdate', 'OnDelete'"),
        ({"image.digest": "sha256:12"}, "does not match pattern"),
        ({"kubeletRootDir": "var/lib/kubelet"}, "does not match pattern"),
        ({"metrics.port": 0}, "minimum"),
        ({"distribution": "rancher"}, "must be one of '', 'k3s', 'rke2'"),
        ({"serviceAccount.create": False}, "serviceAccount.name is needed"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(value: Object, found: str) -> None:
    done = template(value)
    assert done.returncode != 0
    assert found in done.stderr


def read_by_templates() -> set[str]:
    """Return the values that templates name by their whole path."""
    files = (path for path in (CHART / "templates").rglob("*") if path.is_file())
    texts = [path.read_text("utf-8") for path in files]
    return {path for text in texts for path in re.findall(r"\.Values\.([\w.]+)", text)}


def given_values(within: Object, path: str = "") -> Iterator[str]:
    """Yield the path of each value that the chart has a default for, maps of them included."""
    for name, one in within.items():
        inner = f"{path}.{name}".lstrip(".")
        yield inner
        if isinstance(one, dict) and inner not in {*OPEN, "settings"}:
            yield from given_values(one, inner)


def test_templates_read_no_value_that_has_no_default() -> None:
    assert read_by_templates() <= set(given_values(defaults()))


@pytest.mark.parametrize("path", [*given_values(defaults())])
def test_no_value_can_be_taken_away(path: str) -> None:
    # Helm drops the key of a null: a template would read nothing, a policy of nothing allow all.
    done = template({path: None})
    parent, _, name = path.rpartition(".")
    assert done.returncode != 0
    assert f"at '{'/' if parent else ''}{parent.replace('.', '/')}': missing property '{name}'" in (
        done.stderr
    )


@pytest.mark.parametrize("prefixes", [None, "", "x", [], [""], ["", "x/"], ["x"], [None], {}, 1])
def test_prefixes_that_would_allow_more_are_refused(prefixes: object) -> None:
    done = template({"policy.ownPrefixes": prefixes})
    assert done.returncode != 0
    assert "policy" in done.stderr


@pytest.mark.parametrize("prefixes", [None, [], [""]], ids=str)
def test_no_prefix_allows_no_label_where_the_schema_is_not_asked(prefixes: object) -> None:
    objects = render({"policy.ownPrefixes": prefixes}, "--skip-schema-validation")
    own = [
        variable["expression"]
        for one in objects
        if one["metadata"]["name"] in {"nodetopo-own-node", "nodetopo-own-features"}
        for variable in one["spec"].get("variables", ())
        if variable["name"] == "own"
    ]
    assert own == ["[]", "[]"]


def daemonset(values: Object) -> Object:
    """Return the DaemonSet that the chart renders with *values*."""
    (found,) = (one for one in render(values) if one["kind"] == "DaemonSet")
    return found


def test_the_defaults_of_the_pod_can_be_overridden() -> None:
    values = {
        "updateStrategy": {"type": "OnDelete"},
        "terminationGracePeriodSeconds": 30,
        "podSecurityContext": {"seLinuxOptions": {"type": "spc_t"}},
        "securityContext": {"runAsGroup": 0, "capabilities": {"add": ["SYS_PTRACE"]}},
        "livenessProbe.failureThreshold": 12,
        "readinessProbe.periodSeconds": 5,
        "initContainers": [{"name": "wait", "image": "busybox"}],
    }
    found = daemonset(values)["spec"]
    assert found["updateStrategy"] == {"type": "OnDelete"}
    pod = found["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 30
    assert pod["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert [one["name"] for one in pod["initContainers"]] == ["wait"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]},
    }
    assert container["livenessProbe"]["failureThreshold"] == 12
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["periodSeconds"] == 5
    assert container["readinessProbe"]["failureThreshold"] == 3


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"nameOverride": "gpus"}, "nodetopo-gpus"),
        ({"fullnameOverride": "gpus"}, "gpus"),
        ({"fullnameOverride": "gpus", "nameOverride": "other"}, "gpus"),
    ],
    ids=str,
)
def test_names_can_be_overridden_and_the_pods_are_still_found(values: Object, name: str) -> None:
    found = daemonset(values)
    assert found["metadata"]["name"] == name
    assert found["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == "nodetopo"


def test_common_labels_are_on_every_object_and_on_the_pods_but_select_nothing() -> None:
    values = {
        "commonLabels": {"team": "infra"},
        "namespace.create": True,
        "priorityClass.create": True,
        "networkPolicy.create": True,
        "components.dra": True,
        "components.flowSchema": True,
        "metrics.podMonitor.create": True,
        "metrics.serviceMonitor.create": True,
        "metrics.rules.create": True,
        "metrics.dashboard.create": True,
        "namedConfigs.configs": {"default": {"version": "v1"}},
    }
    objects = [one for one in render(values) if one["metadata"]["name"] != "nodetopo-test"]
    assert [
        (one["kind"], one["metadata"]["name"])
        for one in objects
        if one["metadata"]["labels"].get("team") != "infra"
    ] == []
    found = daemonset(values)["spec"]
    assert found["template"]["metadata"]["labels"]["team"] == "infra"
    assert "team" not in found["selector"]["matchLabels"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(values: Object) -> list[Object]:
    """Return the terms of the node affinity, of which a node must fulfil one."""
    affinity = daemonset(values)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    found: list[Object] = affinity[REQUIRED]["nodeSelectorTerms"]
    return found


def runs_on(node_labels: dict[str, str], values: Object) -> bool:
    """Return whether the node affinity of *values* lets the pod onto a node (core/v1)."""

    def holds(wanted: Object) -> bool:
        value = node_labels.get(wanted["key"])
        match wanted["operator"]:
            case "In":
                return value in wanted["values"]
            case "NotIn":
                return value not in wanted["values"]
            case "Exists":
                return value is not None
        raise AssertionError(wanted)

    return any(all(map(holds, term["matchExpressions"])) for term in terms(values))


@pytest.mark.parametrize(
    "labels",
    [
        {"feature.node.kubernetes.io/pci-10de.present": "true"},
        {"feature.node.kubernetes.io/pci-0302_10de.present": "true"},
        {"nvidia.com/gpu.present": "true"},
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"kubernetes.azure.com/accelerator": "nvidia"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
        {"gpu.topology/interconnect": "nvswitch"},
    ],
    ids=str,
)
def test_the_agent_runs_on_gpu_nodes_while_the_operator_lets_it(labels: dict[str, str]) -> None:
    assert runs_on(labels, {})
    assert runs_on({**labels, "nvidia.com/gpu.deploy.device-plugin": "true"}, {})
    for paused in ("false", "paused-for-driver-upgrade", "paused-for-mig-change"):
        assert not runs_on({**labels, "nvidia.com/gpu.deploy.device-plugin": paused}, {})


@pytest.mark.parametrize(
    "labels", [{}, {"kubernetes.azure.com/accelerator": "amd"}, {"nvidia.com/gpu.present": "false"}]
)
def test_other_nodes_get_the_agent_only_on_request(labels: dict[str, str]) -> None:
    assert not runs_on(labels, {})
    assert runs_on(labels, {"gpuNodesOnly": False})


def test_an_affinity_of_the_values_keeps_the_charts_unless_it_is_about_nodes() -> None:
    apart: Object = {"podAntiAffinity": {REQUIRED: []}}
    assert terms({"affinity": apart}) == terms({})
    own = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    assert terms({"affinity": {"nodeAffinity": {REQUIRED: own}}}) == own["nodeSelectorTerms"]


def test_an_old_cluster_is_refused() -> None:
    done = template({}, "--kube-version", "1.29.0")
    assert done.returncode != 0
    assert "kubeVersion" in done.stderr


def test_the_agent_takes_settings_of_every_form() -> None:
    chosen = {
        "placement-policy": "nic-required",
        "exclude-gpus": ["0", "GPU-7"],
        "scan-interval": 90,
        "health-checks": False,
    }
    (daemonset,) = (one for one in render({"settings": chosen}) if one["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item.get("value", "10.0.0.1") for item in container["env"]}
    arguments = [text.replace("$(NODE_NAME)", "n") for text in container["args"]]
    arguments = [text.replace("$(POD_IP)", "10.0.0.1") for text in arguments]
    settings = Resolved.of(
        flags=given(parser("run").parse_args(arguments)), environment=environment, file=None
    ).settings
    assert settings.placement_policy.policy("nvidia.com/gpu") == "nic-required"
    assert settings.exclude_gpus == ("0", "GPU-7")
    assert settings.scan_interval_s == 90
    assert not settings.health_checks


def test_configs_that_are_given_are_mounted() -> None:
    objects = render({"namedConfigs.configs": {"default": {"version": "v1"}}})
    (made,) = (one for one in objects if one["kind"] == "ConfigMap")
    assert yaml.safe_load(made["data"]["default"]) == {"version": "v1"}
    (daemonset,) = (one for one in objects if one["kind"] == "DaemonSet")
    spec = daemonset["spec"]["template"]["spec"]
    (volume,) = (one for one in spec["volumes"] if "configMap" in one)
    assert volume["configMap"]["name"] == made["metadata"]["name"]
    assert {"name": "NODETOPO_CONFIG_DIR", "value": "/etc/nodetopo/configs"} in spec["containers"][
        0
    ]["env"]


def test_a_policy_binds_to_the_account_that_is_rendered() -> None:
    values: Object = {"fullnameOverride": "topo", "serviceAccount.name": "gpu-agent"}
    objects = render(values, namespace="elsewhere")
    (daemonset,) = (one for one in objects if one["kind"] == "DaemonSet")
    used = daemonset["spec"]["template"]["spec"]["serviceAccountName"]
    accounts = [one for one in objects if one["kind"] == "ServiceAccount" and not is_hook(one)]
    assert [one["metadata"]["name"] for one in accounts] == [used] == ["gpu-agent"]

    policies = [one for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
    assert len(policies) == 6
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        account = f"system:serviceaccount:elsewhere:{used}"
        assert condition["expression"] == f"request.userInfo.username == '{account}'"
    bound = {
        one["spec"]["policyName"]
        for one in objects
        if one["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert bound == {one["metadata"]["name"] for one in policies}

    subjects = [one["subjects"] for one in objects if one["kind"].endswith("RoleBinding")]
    ours = [list_ for list_ in subjects if list_[0]["name"] != "topo-cleanup"]
    expected = [{"kind": "ServiceAccount", "name": "gpu-agent", "namespace": "elsewhere"}]
    assert ours
    assert all(one == expected for one in ours)


def test_the_same_values_render_the_same_text_and_ask_no_cluster() -> None:
    assert template().stdout == template().stdout
    texts = [path.read_text("utf-8") for path in (CHART / "templates").rglob("*") if path.is_file()]
    for word in ("lookup", "randAlpha", "genCA", "now ", "uuidv4"):
        assert not any(re.search(rf"{{{{[^}}]*\b{word}", text) for text in texts), word


def test_no_hook_runs_at_an_install_or_an_upgrade() -> None:
    hooks = {
        one["metadata"]["annotations"]["helm.sh/hook"]: one["kind"]
        for one in render()
        if is_hook(one)
    }
    assert set(hooks) == {"post-delete", "test"}


def test_an_uninstall_can_leave_the_labels() -> None:
    kinds = {one["kind"] for one in render({"cleanup.enabled": False})}
    assert "Job" not in kinds


def test_the_kubelets_root_moves_all_but_the_directory_that_is_the_same_everywhere() -> None:
    values = {
        "kubeletRootDir": "/var/lib/k0s/kubelet",
        "components.pluginsRegistry": True,
        "components.kubeletConfig": True,
    }
    (daemonset,) = (one for one in render(values) if one["kind"] == "DaemonSet")
    volumes = daemonset["spec"]["template"]["spec"]["volumes"]
    paths = {one["name"]: one["hostPath"]["path"] for one in volumes if "hostPath" in one}
    assert paths["pod-resources"] == "/var/lib/k0s/kubelet/pod-resources"
    assert paths["plugins-registry"] == "/var/lib/k0s/kubelet/plugins_registry"
    assert paths["kubelet-config"] == "/var/lib/k0s/kubelet/config.yaml"
    assert paths["device-plugins"] == "/var/lib/kubelet/device-plugins"


@pytest.mark.parametrize(
    "prefix", ["https://git.example.com/nodetopo/blob/main/", "x: y/", "# ", "'", "$1{{ . }}"]
)
def test_the_runbook_is_found_where_the_values_say(prefix: str) -> None:
    objects = render({"metrics.rules.create": True, "metrics.rules.runbookPrefix": prefix})
    (rules,) = (one for one in objects if one["kind"] == "PrometheusRule")
    urls = [
        rule["annotations"]["runbook_url"]
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert urls
    assert all(url.startswith(f"{prefix}docs/operate/runbook.md#") for url in urls)


def test_the_rules_and_the_dashboard_are_those_of_the_files() -> None:
    objects = render({"metrics.rules.create": True, "metrics.dashboard.create": True})
    (rules,) = (one for one in objects if one["kind"] == "PrometheusRule")
    (dashboard,) = (one for one in objects if one["metadata"]["name"] == "nodetopo-dashboard")
    files = CHART / "files"
    assert rules["spec"] == yaml.safe_load((files / "alerts.yaml").read_text("utf-8"))
    assert (
        dashboard["data"]["nodetopo.json"].strip()
        == Path(files / "dashboard.json").read_text("utf-8").strip()
    )


def test_a_config_keeps_its_name_and_its_text_whatever_they_look_like() -> None:
    texts = {"1.10": "version: v1\n", "on": "  # head\n  version: v1\n", "0123": "\n- a\n", "~": ""}
    rendered = render({"namedConfigs.configs": texts, "components.namedConfig": True})
    (found,) = [it["data"] for it in rendered if it["metadata"]["name"] == "nodetopo-configs"]
    assert found.keys() == texts.keys()
    assert {name: text.rstrip("\n") for name, text in found.items()} == {
        name: text.rstrip("\n") for name, text in texts.items()
    }


@pytest.mark.parametrize(
    ("component", "setting", "value"),
    [("mig", "mig-strategy", "single"), ("ncclHints", "nccl-hints", False)],
)
def test_a_setting_that_is_given_wins_over_its_component(
    component: str, setting: str, value: object
) -> None:
    given_both = {f"components.{component}": True, f"settings.{setting}": value}
    (pod,) = [it for it in render(given_both) if it["kind"] == "DaemonSet"]
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    assert [one for one in container["args"] if one.startswith(f"--{setting}")] == []
    name = f"NODETOPO_{setting.upper().replace('-', '_')}"
    texts = [one["value"] for one in container["env"] if one["name"] == name]
    assert texts == [str(value).lower()]


def test_two_ways_to_nfd_are_refused() -> None:
    done = template({"components.nfdFile": True, "components.nodeFeature": True})
    assert done.returncode == 1
    assert "turn one of them off" in done.stderr


def _texts(node: Any, at: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value that the API server wants to be a text, with its place."""
    if isinstance(node, list):
        for item in node:
            yield from _texts(item, at)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("labels", "annotations", "matchLabels", "nodeSelector"):
                yield from ((f"{at}.{key}.{name}", text) for name, text in value.items())
            elif key in ("name", "namespace", "serviceAccountName", "priorityClassName"):
                yield f"{at}.{key}", value
            else:
                yield from _texts(value, f"{at}.{key}")


@pytest.mark.parametrize("word", ["2024", "0123", "1e3", "true", "on", "null"])
def test_no_text_becomes_another_type(word: str) -> None:
    values: Object = {
        "nodeSelector": {"a": True, "b": 1, "c": word},
        "podAnnotations": {"a": False, "c": word},
        "serviceAccount.annotations": {"a": True, "c": word},
        "metrics.podMonitor": {"create": True, "labels": {"c": word}},
        "metrics.rules": {"create": True, "labels": {"c": word}},
        "metrics.dashboard": {"create": True, "annotations": {"c": word}},
        "priorityClass.create": True,
    }
    given_ = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    given_ += [f"--set-string=fullnameOverride={word}", "--namespace", word]
    done = helm("template", word, CHART, "--kube-version", KUBERNETES, *given_)
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    assert documents
    assert [(at, it) for at, it in _texts(documents) if not isinstance(it, str)] == []
