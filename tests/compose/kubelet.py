"""Kubelet configurations of the composed machines: aligned, half-way, and as installed."""

import json

from agent.model.kubelet import KubeletSettings

SOURCE = "/var/lib/kubelet/config.yaml"
SYSTEM_MEMORY_MIB = 2048
EVICTION_MEMORY_MIB = 100
"""The kubelet's default of ``evictionHard["memory.available"]`` (KubeletConfiguration v1beta1)."""

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
)
"""Every default of KubeletConfiguration v1beta1: nothing is aligned."""


def kubelet_yaml(settings: KubeletSettings) -> str:
    """Return the configuration file that says *settings* and leaves defaults out.

    With the Static memory policy the reservation of node 0 is the sum that the kubelet
    insists on: system reserved plus hard eviction.
    """
    lines = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"]
    for key, value, default in (
        ("cpuManagerPolicy", settings.cpu_manager_policy, "none"),
        ("memoryManagerPolicy", settings.memory_manager_policy, "None"),
        ("topologyManagerPolicy", settings.topology_manager_policy, "none"),
        ("reservedSystemCPUs", settings.reserved_system_cpus, None),
        ("systemReserved", settings.system_reserved or None, None),
    ):
        if value != default:
            lines.append(f"{key}: {json.dumps(value)}")
    if settings.memory_manager_policy == "Static":
        memory = f"{SYSTEM_MEMORY_MIB + EVICTION_MEMORY_MIB}Mi"
        lines.append(f'reservedMemory: [{{numaNode: 0, limits: {{memory: "{memory}"}}}}]')
    return "\n".join(lines)
