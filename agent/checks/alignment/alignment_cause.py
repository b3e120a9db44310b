"""Why something of a running container is apart: the rule that explains it, or a word.

The words are for what no rule can say of a node: what the moment of admission was like.
"""

from dataclasses import dataclass

from agent.checks.alignment.alignment_parts import NONE, cpu_policy, memory_policy
from agent.checks.alignment.devices import DevicePlaces
from agent.checks.alignment.record import Cause
from agent.model.kubelet import KubeletSettings
from agent.model.pod import Container, Pod
from agent.model.qos import QosClass, asks_as_a_pod, class_of, pod_level
from agent.model.snapshot import Snapshot

NO_CPU_MANAGER = Cause(
    code="KUB-001", text="the CPU Manager has the policy none: nobody has CPUs of their own"
)
NO_TOPOLOGY_MANAGER = Cause(
    code="KUB-003",
    text="the Topology Manager has the policy none: devices and CPUs were chosen one by one",
)
NO_MEMORY_MANAGER = Cause(
    code="KUB-004", text="the Memory Manager has the policy None: memory follows the threads"
)
NOT_GUARANTEED = Cause(
    code="QOS-001", text="the pod is not Guaranteed, so that it shares its CPUs and memory"
)
NOT_WHOLE = Cause(code="QOS-002", text="the container asks for no whole number of CPUs")
POD_LEVEL = Cause(
    code="QOS-003",
    text="the pod states its resources as a whole, and the managers leave such pods out",
)
SHARES = Cause(
    code="shared-cpus",
    text="it has no CPUs of its own: the pod is not Guaranteed (QOS-001), or asks for no whole "
    "number of CPUs (QOS-002)",
)
NO_NODE = Cause(
    code="device-without-node", text="a device plugin told the kubelet no NUMA node of its device"
)
UNKNOWN_NODE = Cause(code="NUM-001", text="the firmware tells no NUMA node of a GPU")
PACKED = Cause(
    code="packed",
    text="the CPUs fit on fewer NUMA nodes than the GPUs need, and the CPU Manager takes as few "
    "as it can; distribute-cpus-across-numa spreads them",
)
FRAGMENTED = Cause(
    code="fragmented",
    text="the policy best-effort let the pod in although no NUMA node had enough left",
)
UNEXPLAINED = Cause(
    code="unexplained",
    text="with today's settings the kubelet would not place it so: they were changed since, or "
    "something else changed its cgroup",
)

UNTOLD = Cause(code="unknown-policy", text="the Topology Manager's policy is not known")

KNOWN: tuple[Cause, ...] = (
    NO_CPU_MANAGER,
    NO_TOPOLOGY_MANAGER,
    NO_MEMORY_MANAGER,
    NOT_GUARANTEED,
    NOT_WHOLE,
    POD_LEVEL,
    SHARES,
    NO_NODE,
    UNKNOWN_NODE,
    PACKED,
    FRAGMENTED,
    UNEXPLAINED,
    UNTOLD,
)
"""All of them; a metric has their codes as values of a label."""

Causes = tuple[Cause, ...]

_MILLICORES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Explaining:
    """Explains one container of one pod of one snapshot."""

    pod: Pod
    container: Container
    snapshot: Snapshot
    places: DevicePlaces

    def cpus(self, *, is_packed: bool) -> Causes:
        """Explain CPUs that are apart; *is_packed* where they are all near some of the GPUs."""
        if not self.container.cpus:
            return self._shared_cpus()
        cpuset = self.container.cpuset
        if cpuset is not None and not cpuset <= self.container.cpus:
            return (UNEXPLAINED,)
        if is_packed and self._policy != NONE:
            return (PACKED,)
        return self.placed()

    def memory(self, *, is_bound: bool) -> Causes:
        """Explain memory that is, or may be, apart."""
        if is_bound:
            return self.placed() if self.container.memory else (UNEXPLAINED,)
        manager = (NO_MEMORY_MANAGER,) if memory_policy(self.snapshot) == "None" else ()
        pod = (NOT_GUARANTEED,) if self._is_guaranteed is False else ()
        return (*manager, *pod) or (UNEXPLAINED,)

    def placed(self) -> Causes:
        """Explain what the Topology Manager should have brought together."""
        held = self.places.gpus(self.container)
        if any(one.gpu is not None and one.gpu.numa_node is None for one in held):
            return (UNKNOWN_NODE,)
        told = (NO_NODE,) if self.places.lacks_node(self.container) else ()
        match self._policy:
            case "none":
                return (NO_TOPOLOGY_MANAGER, *told)
            case "best-effort":
                return told or (FRAGMENTED,)
            case None:
                return told or (UNTOLD,)
        return told or (UNEXPLAINED,)

    def _shared_cpus(self) -> Causes:
        manager = (NO_CPU_MANAGER,) if cpu_policy(self.snapshot) == NONE else ()
        pod = (NOT_GUARANTEED,) if self._is_guaranteed is False else ()
        whole = (NOT_WHOLE,) if self._asks_whole is False and not asks_as_a_pod(self.pod) else ()
        level = (POD_LEVEL,) if self._is_guaranteed and asks_as_a_pod(self.pod) else ()
        found = (*manager, *pod, *whole, *level)
        if found:
            return found
        is_unclear = None in (self._is_guaranteed, self._asks_whole)
        return (SHARES,) if is_unclear else (UNEXPLAINED,)

    @property
    def _policy(self) -> str | None:
        settings = self._settings
        return None if settings is None else settings.topology_manager_policy

    @property
    def _settings(self) -> KubeletSettings | None:
        return self.snapshot.kubelet

    @property
    def _is_guaranteed(self) -> bool | None:
        settings, status = self._settings, self.snapshot.node_status
        version = None if settings is None else settings.version
        if version is None and status is not None:
            version = status.kubelet_version
        level = pod_level(version, None if settings is None else settings.feature_gates)
        found = class_of(self.pod, level)
        return None if found is None else found == QosClass.GUARANTEED

    @property
    def _asks_whole(self) -> bool | None:
        if self.container.requests is None:
            return None
        asked = self.container.requests.get("cpu", 0)
        return asked > 0 and asked % _MILLICORES == 0
