"""A directory that stands for a host with a kubelet, for the tests of its settings."""

from collections.abc import Mapping
from pathlib import Path

from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import ProbeIssue
from agent.probes.kubelet_config import read_kubelet_settings

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
    system_reserved={},
    kube_reserved={},
    eviction_hard=EVICTION,
)


def write(host: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = host / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read(tmp_path: Path, files: Mapping[str, str]) -> KubeletSettings:
    write(tmp_path, files)
    settings, issues = read_kubelet_settings(tmp_path, tmp_path / "proc")
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
