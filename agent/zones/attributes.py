"""What a NodeResourceTopology says of the whole node, besides its zones."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from agent.model.kubelet import KubeletSettings
from agent.model.pod_resources import PodHolding
from agent.zones.fingerprint import ATTRIBUTE, METHOD, METHOD_ATTRIBUTE, fingerprint

POLICY = "topologyManagerPolicy"
SCOPE = "topologyManagerScope"
MAX_NUMA_NODES = "topologyManagerMaxNUMANodes"
"""As kubernetes-sigs/scheduler-plugins v0.32.7 reads them (pkg/noderesourcetopology/nodeconfig/
topologymanager.go); KAI Scheduler v0.17.0 reads the first two (pkg/scheduler/api/node_info/
numa_topology.go). Values are the kubelet's own."""

CPU_MANAGER = "cpuManagerPolicy"
MEMORY_MANAGER = "memoryManagerPolicy"
"""Ours: without them nobody can tell whether the kubelet aligns CPUs and memory at all."""

PUBLISHER = "publisher"
"""Ours: whose object it is, should the API server not tell."""

_OPTION = "max-allowable-numa-nodes"
"""Of the Topology Manager (kubernetes 1.36 pkg/kubelet/cm/topologymanager/policy_options.go)."""

MARK: Mapping[str, str] = MappingProxyType({PUBLISHER: "nodetopo"})


def attributes(kubelet: KubeletSettings | None, pods: Iterable[PodHolding]) -> Mapping[str, str]:
    """Return the attributes by name, in the order in which they are written.

    What *kubelet* does not tell is left out: schedulers then take the policy ``none``, and
    filter nothing.
    """
    told = {} if kubelet is None else _of_kubelet(kubelet)
    return {
        **{name: value for name, value in told.items() if value},
        ATTRIBUTE: fingerprint(pods),
        METHOD_ATTRIBUTE: METHOD,
        **MARK,
    }


def _of_kubelet(kubelet: KubeletSettings) -> Mapping[str, str | None]:
    options = kubelet.topology_manager_options or {}
    return {
        POLICY: kubelet.topology_manager_policy,
        SCOPE: kubelet.topology_manager_scope,
        MAX_NUMA_NODES: options.get(_OPTION),
        CPU_MANAGER: kubelet.cpu_manager_policy,
        MEMORY_MANAGER: kubelet.memory_manager_policy,
    }
