"""Kubelets that a distribution starts, and files that a distribution puts elsewhere."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.probes.kubelet.kubelet_host import DEFAULTS, HEADER, origins, process, read, refused

K3S = "var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
BY_K3S = HEADER + "failSwapOn: false\nevictionHard: {nodefs.available: 5%}\n"
PASSWORD = {"etc/rancher/node/password": "of every node"}
K3S_DEFAULTS = {f"{K3S}/00-k3s-defaults.conf": BY_K3S, **PASSWORD}
TITLE = {"proc/7/cmdline": "/usr/local/bin/k3s agent\0\0\0\0"}
"""k3s hides its words behind a title."""


def test_a_kubelet_inside_k3s_has_the_drop_ins_that_k3s_collects(tmp_path: Path) -> None:
    files = {
        **K3S_DEFAULTS,
        f"{K3S}/50-own.conf": HEADER + "cpuManagerPolicy: static\n",
        **TITLE,
    }
    assert read(tmp_path, files) == replace(
        DEFAULTS,
        source=f"2 drop-ins in /{K3S}",
        embedded_in="k3s",
        cpu_manager_policy="static",
        fail_swap_on=False,
        eviction_hard={"nodefs.available": "5%"},
    )


def test_kubelet_arg_of_k3s_is_a_flag(tmp_path: Path) -> None:
    files = {
        **K3S_DEFAULTS,
        **TITLE,
        "etc/rancher/k3s/config.yaml": "token: secret\nkubelet-arg: [max-pods=50, v=2]\n",
    }
    assert read(tmp_path, files).max_pods == 50
    place = "kubelet-arg of /etc/rancher/k3s/config.yaml"
    assert origins(tmp_path, files)["maxPods"] == f"--max-pods in {place}"


def test_a_later_file_of_k3s_replaces_its_arguments_or_adds_to_them(tmp_path: Path) -> None:
    files = {
        **K3S_DEFAULTS,
        **TITLE,
        "etc/rancher/k3s/config.yaml": "kubelet-arg: [max-pods=50]\n",
        "etc/rancher/k3s/config.yaml.d/10.yaml": "kubelet-arg: pod-max-pids=9\n",
        "etc/rancher/k3s/config.yaml.d/20.yaml": "kubelet-arg+: [cpu-manager-policy=static]\n",
    }
    settings = read(tmp_path, files)
    assert (settings.max_pods, settings.pod_pids_limit) == (110, 9)
    assert settings.cpu_manager_policy == "static"


def test_the_unit_of_k3s_has_the_last_word(tmp_path: Path) -> None:
    unit = (
        "[Service]\nExecStart=/usr/local/bin/k3s \\\n    agent \\\n"
        "\t'--kubelet-arg=max-pods=60' \\\n\t'--kubelet-arg' \\\n\t'config=/etc/k.yaml' \\\n"
    )
    files = {
        **K3S_DEFAULTS,
        **TITLE,
        "etc/rancher/k3s/config.yaml": "kubelet-arg: [max-pods=50]\n",
        "etc/systemd/system/k3s-agent.service": unit,
    }
    assert read(tmp_path, files).max_pods == 60


def test_k3s_may_keep_its_data_elsewhere(tmp_path: Path) -> None:
    files = {
        **TITLE,
        "etc/rancher/k3s/config.yaml": "data-dir: /data/k3s\n",
        "data/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf": BY_K3S,
    }
    assert read(tmp_path, files).fail_swap_on is False


def test_the_settings_of_an_old_k3s_are_an_issue(tmp_path: Path) -> None:
    assert refused(tmp_path, TITLE).reason.startswith("k3s before 1.32 tells")


@pytest.mark.parametrize("text", ["- a list", "a: ["])
def test_a_malformed_file_of_k3s_is_an_issue_that_names_it(tmp_path: Path, text: str) -> None:
    files = {**K3S_DEFAULTS, **TITLE, "etc/rancher/k3s/config.yaml": text}
    assert refused(tmp_path, files).subject == "/etc/rancher/k3s/config.yaml"


@pytest.mark.parametrize("is_running", [True, False])
def test_drop_ins_without_the_arguments_that_win_over_them_are_no_settings(
    tmp_path: Path, *, is_running: bool
) -> None:
    files = {f"{K3S}/00-k3s-defaults.conf": BY_K3S, **(TITLE if is_running else {})}
    found = refused(tmp_path, files)
    assert found.subject == "/etc/rancher/k3s/config.yaml"
    assert "kubelet-arg wins over the drop-ins" in found.reason
    assert read(tmp_path / "seen", {**files, **PASSWORD}).fail_swap_on is False


def test_a_one_off_command_of_k3s_is_no_kubelet(tmp_path: Path) -> None:
    files = process("/usr/local/bin/k3s", "kubectl", "get", "nodes")
    assert "no kubelet process was seen" in refused(tmp_path, files).reason


def test_rke2_starts_a_kubelet_of_a_version(tmp_path: Path) -> None:
    files = {
        "var/lib/rancher/rke2/agent/etc/kubelet.conf.d/00-rke2-defaults.conf": BY_K3S,
        **process(
            "/var/lib/rancher/rke2/data/v1.34.1-rke2r1-0123456789ab/bin/kubelet",
            "--config-dir=/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
            "--max-pods=50",
        ),
    }
    settings = read(tmp_path, files)
    assert (settings.embedded_in, settings.version) == ("rke2", "v1.34.1")
    assert (settings.fail_swap_on, settings.max_pods) == (False, 50)


@pytest.mark.parametrize("name", ["k3s", "rke2"])
def test_without_a_process_the_files_of_rancher_are_found(tmp_path: Path, name: str) -> None:
    files = {
        f"var/lib/rancher/{name}/agent/etc/kubelet.conf.d/00.conf": BY_K3S,
        f"etc/rancher/{name}/config.yaml": "kubelet-arg: root-dir=/data\n",
    }
    settings = read(tmp_path, files)
    assert (settings.embedded_in, settings.root_directory) == (name, "/data")


ARGUMENTS = (
    "--root-dir=${SNAP_COMMON}/var/lib/kubelet\n"
    "# --max-pods=5\n"
    "--cpu-manager-policy static\n"
    '--eviction-hard="memory.available<100Mi,nodefs.available<1Gi"\n'
    "--fail-swap-on=false\n"
)


@pytest.mark.parametrize("is_running", [True, False])
def test_microk8s_has_a_file_of_arguments(tmp_path: Path, is_running: bool) -> None:
    path = "var/snap/microk8s/9044/args/kubelet" if is_running else MICROK8S
    files = {path: ARGUMENTS}
    if is_running:
        files |= process("/snap/microk8s/9044/kubelite", f"--kubelet-args-file=/{path}")
    assert read(tmp_path, files) == replace(
        DEFAULTS,
        source=f"/{path}",
        embedded_in="microk8s",
        root_directory="/var/snap/microk8s/common/var/lib/kubelet",
        cpu_manager_policy="static",
        fail_swap_on=False,
        eviction_hard={"memory.available": "100Mi", "nodefs.available": "1Gi"},
    )


MICROK8S = "var/snap/microk8s/current/args/kubelet"


def test_arguments_that_are_no_command_line_are_an_issue(tmp_path: Path) -> None:
    issue = refused(tmp_path, {MICROK8S: '--max-pods="5'})
    assert issue.subject == f"/{MICROK8S}"


@pytest.mark.parametrize(
    "path",
    [
        "etc/kubernetes/kubelet/config.json",
        "etc/kubernetes/kubelet/kubelet-config.json",
        "etc/kubernetes/kubelet/config",
        "home/kubernetes/kubelet-config.yaml",
        "etc/default/kubeletconfig.json",
        "etc/kubernetes/kubelet.yaml",
        "etc/kubernetes/kubelet.conf",
    ],
)
def test_without_a_process_the_usual_places_are_tried(tmp_path: Path, path: str) -> None:
    settings = read(tmp_path, {path: HEADER + "cpuManagerPolicy: static\n"})
    assert settings == replace(DEFAULTS, source=f"/{path}", cpu_manager_policy="static")


def test_drop_ins_beside_a_usual_place_are_merged(tmp_path: Path) -> None:
    files = {
        "etc/kubernetes/kubelet/config.json": HEADER,
        "etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf": HEADER + "maxPods: 17\n",
    }
    assert read(tmp_path, files).max_pods == 17


def test_k0s_keeps_state_elsewhere(tmp_path: Path) -> None:
    settings = read(tmp_path, {"var/lib/k0s/kubelet-config.yaml": HEADER})
    assert (settings.embedded_in, settings.root_directory) == ("k0s", "/var/lib/k0s/kubelet")
