"""The files of each distribution: composed, mounted as its overlay does, and read."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from nodetopo.deviceplugin.cdi import KIND
from nodetopo.deviceplugin.hand_over import choose, read_setup
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.probes.host import runtimes
from nodetopo.probes.host.runtimes import runtime_configs
from nodetopo.probes.kubelet.config import read_kubelet_settings
from nodetopo.probes.kubelet.sources import MICROK8S, USUAL_PLACES
from nodetopo.probes.sysfs.files import Files
from scripts.generators.distributions import distributions
from tests.deploy.kustomize import Object, render
from tests.deploy.test_components import DEPLOY, daemonset, pod

CONTAINERD = """\
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
IMPORTING = 'version = 3\nimports = ["{0}"]\n'
CRIO = (
    '[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\n'
    'runtime_path = "/usr/bin/nvidia-container-runtime"\n'
)
TOOLKIT = {
    "etc/nvidia-container-runtime/config.toml": (
        "accept-nvidia-visible-devices-envvar-when-unprivileged = true\n"
    )
}
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: restricted
"""
SECRET = "token: not for the agent"

RANCHER = "var/lib/rancher/{0}/agent/etc"
SNAP = "var/snap/microk8s/current/args"


class Place(NamedTuple):
    """The files of a distribution: the runtime's, the kubelet's, and secrets next to them."""

    runtime: Mapping[str, str]
    kubelet: Mapping[str, str]
    secrets: tuple[str, ...]


def rancher(name: str) -> Place:
    etc = RANCHER.format(name)
    drop_in = f"/{etc}/containerd/config-v3.toml.d/*.toml"
    return Place(
        {
            f"{etc}/containerd/config.toml": IMPORTING.format(drop_in),
            f"{etc}/containerd/config-v3.toml.d/nvidia.toml": CONTAINERD,
        },
        {f"{etc}/kubelet.conf.d/00-{name}-defaults.conf": KUBELET},
        (f"etc/rancher/{name}/config.yaml", f"var/lib/rancher/{name}/agent/client-kubelet.key"),
    )


PLACES = {
    "k3s": rancher("k3s"),
    "rke2": rancher("rke2"),
    "k0s": Place(
        {"run/k0s/containerd-cri.toml": CONTAINERD},
        {"var/lib/k0s/kubelet-config.yaml": KUBELET},
        ("run/k0s/containerd.sock", "var/lib/k0s/kubelet.conf", "var/lib/k0s/pki/ca.key"),
    ),
    "microk8s": Place(
        {f"{SNAP}/containerd.toml": CONTAINERD},
        {
            f"{SNAP}/kubelet": "--config=${SNAP_DATA}/args/kubelet-config.yaml\n",
            f"{SNAP}/kubelet-config.yaml": KUBELET,
        },
        ("var/snap/microk8s/current/credentials/kubelet.config",),
    ),
    "talos": Place(
        {
            "etc/cri/containerd.toml": IMPORTING.format("/etc/cri/conf.d/cri.toml"),
            "etc/cri/conf.d/cri.toml": CONTAINERD,
        },
        {"etc/kubernetes/kubelet.yaml": KUBELET},
        ("etc/kubernetes/kubeconfig-kubelet",),
    ),
    "bottlerocket": Place(
        {"etc/containerd/config.toml": CONTAINERD},
        {"etc/kubernetes/kubelet/config": KUBELET},
        ("etc/kubernetes/kubelet/bootstrap-kubeconfig",),
    ),
    "openshift": Place(
        {"etc/crio/crio.conf": "", "etc/crio/crio.conf.d/99-nvidia.conf": CRIO},
        {"etc/kubernetes/kubelet.conf": KUBELET},
        ("etc/kubernetes/kubeconfig",),
    ),
    "eks": Place(
        {"etc/containerd/config.toml": CONTAINERD},
        {
            "etc/kubernetes/kubelet/config.json": '{"kind": "KubeletConfiguration", '
            '"apiVersion": "kubelet.config.k8s.io/v1beta1"}',
            "etc/kubernetes/kubelet/config.json.d/00-nodeadm.conf": KUBELET,
        },
        ("etc/kubernetes/pki/ca.crt",),
    ),
    "gke": Place(
        {"etc/containerd/config.toml": CONTAINERD},
        {"home/kubernetes/kubelet-config.yaml": KUBELET},
        ("home/kubernetes/kube-env",),
    ),
    "aks": Place(
        {"etc/containerd/config.toml": CONTAINERD},
        {"etc/default/kubeletconfig.json": KUBELET},
        ("etc/kubernetes/azure.json",),
    ),
}

BY_ARGUMENTS = {"k3s", "rke2"}
"""Whose kubelets get settings by a file that also holds the cluster's token."""

USUALLY_CREATED = {"/etc/cdi", "/run/cdi", "/etc/nvidia-container-runtime", "/usr/local"}
"""What parts/cdi-and-toolkit makes the runtime create on a host without it."""


class Node:
    """A composed host, and what a pod of the DaemonSet *of* sees of it below /host."""

    def __init__(self, folder: Path, place: Place, of: Object) -> None:
        self.host, self.seen = folder / "host", folder / "pod"
        for path, text in {**place.runtime, **place.kubelet}.items():
            self._write(path, text)
        for path in place.secrets:
            self._write(path, SECRET)
        self.created: set[str] = set()
        self._mount(of)

    def _write(self, path: str, text: str) -> None:
        file = self.host / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def _mount(self, of: Object) -> None:
        """Mount as kubelet and container runtime do, each path where the pod expects it."""
        volumes = {one["name"]: one.get("hostPath") for one in pod(of)["volumes"]}
        (container,) = pod(of)["containers"]
        for mount in container["volumeMounts"]:
            volume, below = volumes[mount["name"]], mount["mountPath"].removeprefix("/host/")
            if volume is None or below == mount["mountPath"] or below == "sys":
                continue
            if below == "var/lib/kubelet/device-plugins":
                continue  # of the base
            assert mount["readOnly"], mount
            source = self.host / volume["path"].lstrip("/")
            kind = volume.get("type", "")
            assert kind in {"", "Directory", "File"}, volume
            if kind:
                is_so = source.is_dir() if kind == "Directory" else source.is_file()
                assert is_so, f"the pod does not start: {volume}"
            elif not source.exists():
                source.mkdir(parents=True)
                self.created.add(volume["path"])
            target = self.seen / below
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


def overlay(name: str) -> Object:
    return daemonset(render(DEPLOY / "overlays" / name))


def test_every_distribution_is_composed() -> None:
    assert PLACES.keys() == distributions().keys()


@pytest.mark.parametrize("name", PLACES)
def test_the_agent_reads_the_runtime_and_the_kubelet(name: str, tmp_path: Path) -> None:
    node = Node(tmp_path, PLACES[name], overlay(name))
    (config,) = runtime_configs(Files("host", node.seen), None) or ()
    assert config.path == f"/{next(iter(PLACES[name].runtime))}"
    assert config.default_runtime == "nvidia"
    assert config.nvidia_runtimes == ("nvidia",)
    if name in BY_ARGUMENTS:
        # Not half of them: what the file with the token says would win.
        settings, (issue,) = read_kubelet_settings(node.seen, tmp_path / "no-processes")
        assert settings is None
        assert issue.subject == f"/etc/rancher/{name}/config.yaml"
        (node.seen / "etc/rancher").symlink_to(node.host / "etc/rancher")
    settings, issues = read_kubelet_settings(node.seen, tmp_path / "also-none")
    assert (issues, settings is not None) == ((), True)
    assert settings is not None
    assert settings.topology_manager_policy == "restricted"


@pytest.mark.parametrize("name", PLACES)
def test_the_pod_reads_what_the_whole_host_has(name: str, tmp_path: Path) -> None:
    node = Node(tmp_path, PLACES[name], overlay(name))
    if name in BY_ARGUMENTS:
        (node.seen / "etc/rancher").symlink_to(node.host / "etc/rancher")
    whole, seen = (runtime_configs(Files("host", root), None) for root in (node.host, node.seen))
    assert (whole is not None, seen) == (True, whole)
    whole_kubelet, seen_kubelet = (
        read_kubelet_settings(root, tmp_path / "no-processes") for root in (node.host, node.seen)
    )
    assert seen_kubelet == whole_kubelet


@pytest.mark.parametrize("name", [name for name, one in distributions().items() if one["toolkit"]])
def test_the_way_of_devices_into_containers_is_chosen_as_on_the_host(
    name: str, tmp_path: Path
) -> None:
    with_toolkit = PLACES[name]._replace(runtime={**PLACES[name].runtime, **TOOLKIT})
    node = Node(tmp_path, with_toolkit, overlay(name))
    whole, seen = read_setup(node.host), read_setup(node.seen)
    assert (seen.runtimes, seen.toolkit) == (whole.runtimes, whole.toolkit)
    assert seen.toolkit is not None
    chosen = choose(seen, kind=KIND, devices=())
    assert (chosen.strategy, chosen.problem) == (Strategy.ENVVAR, None)
    assert chosen.strategy == choose(whole, kind=KIND, devices=()).strategy
    blind = Node(tmp_path / "base", with_toolkit, daemonset(render(DEPLOY / "base")))
    guessed = choose(read_setup(blind.seen), kind=KIND, devices=())
    assert guessed.strategy == Strategy.CDI_CRI
    assert guessed.reason.startswith("nothing is known")


@pytest.mark.parametrize("name", PLACES)
def test_without_its_overlay_neither_is_seen(name: str, tmp_path: Path) -> None:
    node = Node(tmp_path, PLACES[name], daemonset(render(DEPLOY / "base")))
    assert runtime_configs(Files("host", node.seen), None) is None
    assert read_kubelet_settings(node.seen, tmp_path / "no-processes")[0] is None


@pytest.mark.parametrize("name", PLACES)
def test_no_secret_next_to_the_files_is_seen(name: str, tmp_path: Path) -> None:
    node = Node(tmp_path, PLACES[name], overlay(name))
    assert PLACES[name].secrets
    assert [path for path in PLACES[name].secrets if (node.seen / path).exists()] == []


@pytest.mark.parametrize("name", PLACES)
def test_no_directory_of_another_distribution_is_created_on_the_host(
    name: str, tmp_path: Path
) -> None:
    created = Node(tmp_path, PLACES[name], overlay(name)).created
    assert created == (USUALLY_CREATED if distributions()[name]["toolkit"] else set())


def test_every_place_that_the_readers_know_is_mounted_by_one() -> None:
    mounted = {
        Path(mount["path"]) for one in distributions().values() for mount in one["mounts"]
    } | {Path("/var/lib/kubelet/config.yaml")}  # of overlays/kubeadm
    known = [Path("/", path) for path in (*runtimes.PATHS, runtimes.FILE)]
    known += [Path(place.config) for place in USUAL_PLACES]
    known += [MICROK8S]
    known += [Path("/", RANCHER.format(name), "kubelet.conf.d") for name in ("k3s", "rke2")]
    assert [
        str(path)
        for path in known
        if not any(path == place or place in path.parents for place in mounted)
    ] == []


def test_what_is_elsewhere_is_where_the_reader_of_the_kubelet_says() -> None:
    roots = {place.config: place.root_directory for place in USUAL_PLACES}
    (config,) = PLACES["k0s"].kubelet
    assert distributions()["k0s"]["kubeletRootDir"] == roots[f"/{config}"]
    volumes = {one["name"]: one["hostPath"] for one in pod(overlay("k0s"))["volumes"][:4]}
    assert volumes["pod-resources"]["path"] == f"{roots[f'/{config}']}/pod-resources"


def test_where_the_host_has_a_device_plugin_the_agent_offers_no_gpus() -> None:
    found = overlay("bottlerocket")
    (container,) = pod(found)["containers"]
    assert {"name": "NODETOPO_OFFER_GPUS", "value": "never"} in container["env"]


def test_openshift_lets_the_pod_in() -> None:
    objects = render(DEPLOY / "overlays" / "openshift")
    (allowed,) = (one for one in objects if one["kind"] == "SecurityContextConstraints")
    spec = pod(daemonset(objects))
    (container,) = spec["containers"]
    account = f"nodetopo:{spec['serviceAccountName']}"
    assert allowed["users"] == [f"system:serviceaccount:{account}"]
    kinds = {
        "emptyDir" if "emptyDir" in one else "hostPath" if "hostPath" in one else "?"
        for one in spec["volumes"]
    }
    assert kinds <= set(allowed["volumes"])
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert allowed["requiredDropCapabilities"] == ["ALL"]
    assert (
        allowed["readOnlyRootFilesystem"] is container["securityContext"]["readOnlyRootFilesystem"]
    )
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert allowed["seccompProfiles"] == ["runtime/default"]
    assert not {"hostPID", "hostIPC", "hostNetwork"} & spec.keys()
