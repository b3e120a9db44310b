"""What a simulated node's kubelet is told."""

from collections.abc import Mapping
from pathlib import Path

import yaml
from msgspec import Struct, field

_SYSTEM_MEMORY_MIB = 500
_EVICTION_MEMORY_MIB = 100


class Policies(Struct, frozen=True, kw_only=True):
    """The settings that decide alignment, spelled as the kubelet spells them."""

    topology: str = "single-numa-node"
    cpu: str = "static"
    memory: str = "Static"
    scope: str = "container"
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    topology_options: Mapping[str, str] = field(default_factory=dict)
    gates: Mapping[str, bool] = field(default_factory=dict)


def configuration(
    policies: Policies,
    *,
    host: Path,
    runtime: Path,
    port: int,
    is_user_namespace: bool,
    gates: Mapping[str, bool] | None = None,
) -> str:
    """Return the KubeletConfiguration of the machine unpacked below *host*.

    No limits on containers are enforced, because none of them has a process: *runtime* is
    the socket of Kubernetes' in-memory runtime. Who asks the kubelet something is asked of the
    API server, as on real clusters.
    """
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{runtime}",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "resolvConf": "",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "registerNode": True,
        "nodeStatusUpdateFrequency": "2s",
        "topologyManagerPolicy": policies.topology,
        "topologyManagerScope": policies.scope,
        "topologyManagerPolicyOptions": dict(policies.topology_options),
        "cpuManagerPolicy": policies.cpu,
        "cpuManagerPolicyOptions": dict(policies.cpu_options),
        "reservedSystemCPUs": first_core(host),
        "memoryManagerPolicy": policies.memory,
        "systemReserved": {"memory": f"{_SYSTEM_MEMORY_MIB}Mi"},
        "evictionHard": {"memory.available": f"{_EVICTION_MEMORY_MIB}Mi"},
    }
    if policies.memory == "Static":
        # The Memory Manager starts only if this is exactly the sum of what else is reserved.
        amount = f"{_SYSTEM_MEMORY_MIB + _EVICTION_MEMORY_MIB}Mi"
        document["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": amount}}]
    own = {"KubeletInUserNamespace": True} if is_user_namespace else {}
    document["featureGates"] = {**(gates or {}), **own, **policies.gates}
    return yaml.safe_dump(document, sort_keys=False)


def first_core(host: Path) -> str:
    """Return the CPUs of the machine's first core, kept for the system as operators do."""
    path = host / "sys/devices/system/cpu/cpu0/topology/thread_siblings_list"
    return path.read_text("utf-8").strip()
