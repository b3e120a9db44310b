"""Rules on pods that get GPUs by ResourceClaims."""

from collections.abc import Iterator

from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.alignment.record import cpu_policy
from nodetopo.components.audit.rules.gpu_pods import container_name, missing_pods
from nodetopo.components.audit.rules.pods.inputs import missing_specs
from nodetopo.model.kubernetes import MILLICORES
from nodetopo.model.pod import Container, Pod
from nodetopo.model.qos import QosClass, class_of, pod_level
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.published import ClaimedGpus

STATIC = "static"


@rule("POD-013", Severity.WARNING)
def cpus_beside_claims(snapshot: Snapshot) -> Judgement:
    """Find containers with GPUs by claim and exclusive CPUs."""
    yield from missing_pods(snapshot)
    with_claims = tuple(_with_claims(snapshot))
    if not with_claims:
        return
    yield from missing_specs(snapshot)
    policy = cpu_policy(snapshot)
    if policy is None:
        yield Missing("CPU Manager policy")
    if snapshot.numa_nodes is None:
        yield Missing("NUMA nodes")
    with_cpus = [node for node in snapshot.numa_nodes or () if len(node.cpus)]
    if policy != STATIC or len(with_cpus) < 2:
        return
    for pod, container in with_claims:
        if _is_pinned(snapshot, pod, container):
            cpus = (container.requests or {}).get("cpu", 0) // MILLICORES
            yield Finding(
                subject=container_name(pod, container),
                observed=f"{cpus} exclusive CPUs, and GPUs by claim",
                expected="GPUs and CPUs that the Topology Manager sees",
            )


def _with_claims(snapshot: Snapshot) -> Iterator[tuple[Pod, Container]]:
    """Yield the containers whose claims have GPUs, or could, while not allocated."""
    places = ClaimedGpus(snapshot)
    for pod in snapshot.pods or ():
        for container in pod.containers:
            claimed = container.claimed
            has_gpus = claimed is None or any(places.gpus(device) != () for device in claimed)
            if (container.claims or claimed) and has_gpus:
                yield pod, container


def _is_pinned(snapshot: Snapshot, pod: Pod, container: Container) -> bool:
    settings = snapshot.kubelet
    version = None if settings is None else settings.version
    level = pod_level(version, None if settings is None else settings.feature_gates)
    cpu = (container.requests or {}).get("cpu", 0)
    is_guaranteed = class_of(pod, level) == QosClass.GUARANTEED
    return is_guaranteed and cpu > 0 and cpu % MILLICORES == 0
