"""A directory that stands for a host with a kubelet, for the tests of its settings."""

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.kubelet.config import read_kubelet_settings

HEADER = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
CONFIG = "var/lib/kubelet/config.yaml"
DROP_INS = "etc/kubernetes/kubelet.conf.d"
EVICTION = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
DEFAULTS = KubeletSettings(
    source="/var/lib/kubelet/config.yaml",
    cpu_manager_policy="none",
    cpu_manager_options={},
    memory_manager_policy="None",
    topology_manager_policy="none",
    topology_manager_scope="container",
    topology_manager_options={},
    reserved_system_cpus="",
    system_reserved={},
    kube_reserved={},
    eviction_hard=EVICTION,
    odd_keys=(),
    root_directory="/var/lib/kubelet",
    reserved_memory=(),
    feature_gates={},
    enforce_node_allocatable=("pods",),
    system_reserved_cgroup="",
    kube_reserved_cgroup="",
    cgroup_driver="cgroupfs",
    cpu_cfs_quota=True,
    fail_swap_on=True,
    swap_behavior="",
    pod_pids_limit=-1,
    max_pods=110,
)
"""Of a kubelet with a file that states nothing; without origins, as :func:`read` returns them."""


def write(host: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = host / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read(tmp_path: Path, files: Mapping[str, str]) -> KubeletSettings:
    return replace(read_whole(tmp_path, files), origins=None)


def origins(tmp_path: Path, files: Mapping[str, str]) -> Mapping[str, str]:
    return read_whole(tmp_path, files).origins or {}


def read_whole(
    tmp_path: Path, files: Mapping[str, str], *, history: bool = False
) -> KubeletSettings:
    write(tmp_path, files)
    settings, issues = read_kubelet_settings(tmp_path, tmp_path / "proc", history=history)
    assert issues == ()
    assert settings is not None
    return settings


def refused(tmp_path: Path, files: Mapping[str, str]) -> ProbeIssue:
    write(tmp_path, files)
    settings, issues = read_kubelet_settings(tmp_path, tmp_path / "proc")
    assert settings is None
    (issue,) = issues
    return issue


def process(*arguments: str, pid: int = 812) -> dict[str, str]:
    return {f"proc/{pid}/cmdline": "".join(f"{argument}\0" for argument in arguments)}
