"""Kubelet configurations of the composed machines: aligned, half-way, and as installed."""

import json

from msgspec.structs import replace

from nodetopo.model.kubelet import KubeletSettings, ReservedMemory
from nodetopo.model.numa import CpuSet

SOURCE = "/var/lib/kubelet/config.yaml"
SYSTEM_MEMORY_MIB = 2048
EVICTION_MEMORY_MIB = 100
"""The kubelet's default of ``evictionHard["memory.available"]`` (KubeletConfiguration v1beta1)."""
_MAPS = ("systemReserved", "cpuManagerPolicyOptions")
"""Fields of which each entry has an origin of its own."""

_MEMORY = f"{SYSTEM_MEMORY_MIB + EVICTION_MEMORY_MIB}Mi"

AS_INSTALLED = KubeletSettings(
    source=SOURCE,
    cpu_manager_policy="none",
    cpu_manager_options={},
    memory_manager_policy="None",
    topology_manager_policy="none",
    topology_manager_scope="container",
    topology_manager_options={},
    system_reserved={},
    kube_reserved={},
    eviction_hard={
        "memory.available": f"{EVICTION_MEMORY_MIB}Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    },
    origins={},
    root_directory="/var/lib/kubelet",
    unloaded_drop_ins=(),
    odd_keys=(),
    reserved_system_cpus="",
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
"""Every default of KubeletConfiguration v1beta1: nothing is aligned."""


def as_read(settings: KubeletSettings) -> KubeletSettings:
    """Return *settings* with what their file makes of them: who stated each, and what follows.

    With the Static memory policy the reservation of node 0 is the sum that the kubelet insists
    on: system reserved plus hard eviction. Reserved CPUs are counted among what is reserved.
    """
    stated = [key for key, _ in _stated(settings) if key not in _MAPS]
    system = dict(settings.system_reserved or {})
    if system and settings.reserved_system_cpus:
        system["cpu"] = str(len(CpuSet.parse(settings.reserved_system_cpus)))
    paths = sorted(
        [
            *stated,
            *(f"systemReserved.{resource}" for resource in system),
            *(f"cpuManagerPolicyOptions.{name}" for name in settings.cpu_manager_options or {}),
        ]
    )
    reserved = ReservedMemory(numa_node=0, limits={"memory": _MEMORY})
    is_static = settings.memory_manager_policy == "Static"
    return replace(
        settings,
        origins=dict.fromkeys(paths, SOURCE),
        system_reserved=system,
        reserved_memory=(reserved,) if is_static else (),
    )


def kubelet_yaml(settings: KubeletSettings) -> str:
    """Return the configuration file that says *settings* and leaves defaults out."""
    lines = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"]
    return "\n".join([*lines, *(f"{key}: {text}" for key, text in _stated(settings))])


def _stated(settings: KubeletSettings) -> list[tuple[str, str]]:
    """Return the fields of the file, in its order, as YAML."""
    memory = {key: settings.system_reserved[key] for key in ("memory",) if settings.system_reserved}
    fields = [
        (key, json.dumps(value))
        for key, value, default in (
            ("cpuManagerPolicy", settings.cpu_manager_policy, "none"),
            ("memoryManagerPolicy", settings.memory_manager_policy, "None"),
            ("topologyManagerPolicy", settings.topology_manager_policy, "none"),
            ("cpuManagerPolicyOptions", settings.cpu_manager_options, {}),
            ("reservedSystemCPUs", settings.reserved_system_cpus, ""),
            ("systemReserved", memory, {}),
        )
        if value != default
    ]
    if settings.memory_manager_policy == "Static":
        fields.append(("reservedMemory", f'[{{numaNode: 0, limits: {{memory: "{_MEMORY}"}}}}]'))
    return fields
