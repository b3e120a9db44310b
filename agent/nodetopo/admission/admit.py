"""A node's Topology Manager's answers for pods, container by container.

The kubelet's managers run on the snapshot's facts about the node (kubernetes 1.36 pkg/kubelet/cm;
compared with the real kubelet in the lab). The story, in the order of the modules:

1. :mod:`~nodetopo.admission.snapshot` builds the node's managers:
   :mod:`~nodetopo.admission.cpu_manager` (with :mod:`~nodetopo.admission.cpu_assignment`),
   :mod:`~nodetopo.admission.memory_manager` and :mod:`~nodetopo.admission.device_manager`;
   :mod:`~nodetopo.admission.state` says what running pods hold.
2. :func:`admit` admits one pod after the other, each on what the pods before it left or, where
   it has no place :mod:`~nodetopo.admission.beside` them, alone.
3. :mod:`~nodetopo.admission.scope` takes a pod through the managers: they return
   :mod:`~nodetopo.admission.hints` for what it :mod:`~nodetopo.admission.requests`, as
   :mod:`~nodetopo.topology.node_sets` of sets of NUMA nodes, the Topology Manager merges them
   (:mod:`~nodetopo.admission.merge`), and the containers get their resources, or the pod is
   refused (:mod:`~nodetopo.admission.errors`).
4. :mod:`~nodetopo.admission.explain` says why, and :mod:`~nodetopo.admission.suggestions` what
   would help.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.admission import explain
from nodetopo.admission.beside import Apart, Mates, Occupied, Placed, never_apart, no_mates
from nodetopo.admission.device_manager import Preference, lowest_first
from nodetopo.admission.errors import Missing
from nodetopo.admission.hints import Hint
from nodetopo.admission.snapshot import NodeManagers, managers_of
from nodetopo.model.kubelet_state import HeldMemory
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Pod
from nodetopo.model.qos import PodLevel, asks_as_a_pod, class_of, pod_level
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.published import ClaimedGpus

SCHEMA = "nodetopo/admit/v1"
"""Of an admission as JSON; docs/reference/schema/admit.json describes it."""

MOST_CONTAINERS = 500
"""Containers of all pods together that are computed: some seconds on eight NUMA nodes. As many are
computed at most where replicas are counted."""

_POD_MANAGERS = "PodLevelResourceManagers"
"""Feature gate, off by default up to 1.37, that pins pods with pod-level resources."""


class ContainerAdmission(Struct, frozen=True, kw_only=True):
    """The answer for one container; empty where the kubelet did not come to it."""

    name: str
    exclusive_cpus: int  # their number
    # Of all managers, by resource, the narrowest first and no more than
    # `admission.hints.MOST_SHOWN`; None for no preference, empty where nothing can serve it. In
    # scope `pod`, the pod's.
    hints: Mapping[str, tuple[Hint, ...] | None] = field(default_factory=dict)
    merged: Hint | None = None  # None under policy `none`
    # cpus, devices, memory: what it would be given, nothing if its pod is rejected; of devices that
    # are alike for the kubelet, those that their plugin prefers
    cpus: CpuSet = field(default_factory=CpuSet)
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    memory: tuple[HeldMemory, ...] = ()
    why: tuple[str, ...] = ()  # sentences without full stop


class PodAdmission(Struct, frozen=True, kw_only=True):
    """The answer for one pod."""

    namespace: str
    name: str
    qos: str | None
    admitted: bool | None  # None where an input is missing
    # reason, message: as the kubelet would write them into its status; None unless rejected
    reason: str | None = None
    message: str | None = None
    containers: tuple[ContainerAdmission, ...] = ()
    why: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what a verdict would need
    # Each of which alone would make it fit, smallest first, or where none does, pairs of changes;
    # filled by `admission.suggestions.with_changes`.
    changes: tuple[str, ...] = ()
    # The pods of the manifest, as `namespace/name`, alongside which the node has no place for it;
    # empty where it is admitted alongside all before it, or not at all.
    not_beside: tuple[str, ...] = ()
    # The pods of the manifest, as `namespace/name`, beside which the scheduler keeps it, and beside
    # which the answer is. No changes are looked for there.
    beside: tuple[str, ...] = ()
    replicas: int | None = None  # such pods in the manifest; None where it does not say
    # How many of them the node takes, one after the other; None without a verdict, where none are
    # requested, and where there are more than can be counted.
    admitted_replicas: int | None = None


class Admission(Struct, frozen=True, kw_only=True):
    """The answers for all pods."""

    # policy, scope: of the Topology Manager
    policy: str | None
    scope: str | None
    pods: tuple[PodAdmission, ...]


def admit(
    snapshot: Snapshot,
    pods: Sequence[Pod],
    *,
    prefer: Preference = lowest_first,
    apart: Apart = never_apart,
    mates: Mates = no_mates,
) -> Admission:
    """Admit *pods* one after the other, each on what those before it left.

    A pod that has no place alongside them but fits the node without them is admitted alone: another
    node takes it, and the pods after it find this one as it was. Of a pod with replicas as many
    are admitted as the node takes.

    Args:
        snapshot: the node with its kubelet and the pods that it runs. A running pod with the uid of
            one of *pods* holds nothing.
        pods: as the kubelet would see them, defaulted by the API server.
        apart, mates: by positions in *pods*.
    """
    settings = snapshot.kubelet
    classified = [classed(snapshot, pod) for pod in pods]
    node: NodeManagers | None = None
    missing: tuple[str, ...] = ()
    try:
        node = managers_of(snapshot, classified)
    except Missing as error:
        missing = error.args
    if sum(len(pod.containers) for pod in pods) > MOST_CONTAINERS:
        missing += (f"an answer for more than {MOST_CONTAINERS} containers at once",)

    def nodes_of_cpus(cpus: CpuSet) -> tuple[int, ...]:
        return tuple(sorted(it.id for it in snapshot.numa_nodes or () if len(it.cpus & cpus)))

    answers: list[PodAdmission] = []
    most = max(MOST_CONTAINERS // max(sum(len(pod.containers) for pod in pods), 1), 1)
    here = None if node is None else Occupied(node, prefer, most, apart, mates)
    for number, pod in enumerate(classified):
        unknown = (*missing, *_unknown_of(snapshot, pod))
        placed: Placed | None = None
        if here is not None and not unknown:
            try:
                placed = here.place(number, pod, uid_of(pod, number))
            except Missing as error:
                unknown = error.args
        if placed is not None:
            claims = explain.of_claims(
                placed.replicas.first, nodes_of_cpus, _claimed(snapshot, pod)
            )
            rival_names, mate_names = (
                tuple(f"{pods[at].namespace}/{pods[at].name}" for at in positions)
                for positions in (placed.rivals, placed.mates)
            )
            answer = _answer(pod, placed, rival_names, mate_names, claims)
        else:
            answer = PodAdmission(
                namespace=pod.namespace,
                name=pod.name,
                qos=pod.qos_class,
                admitted=None,
                missing=unknown,
                replicas=pod.replicas,
            )
            # What this pod would leave for the pods after it is not known either.
            name = f"{pod.namespace}/{pod.name}"
            question = f"the verdict on {name}, which determines the remaining resources"
            missing = missing or (question,)
        answers.append(answer)
    return Admission(
        policy=settings.topology_manager_policy if settings is not None else None,
        scope=settings.topology_manager_scope if settings is not None else None,
        pods=tuple(answers),
    )


def classed(snapshot: Snapshot, pod: Pod) -> Pod:
    """Return *pod* as the kubelet of *snapshot* would see it, with its QoS class if it is clear."""
    settings = snapshot.kubelet
    gates = settings.feature_gates if settings is not None else None
    level = pod_level(snapshot.kubelet_version, gates)
    if level is PodLevel.NEVER:  # the API server drops the field
        pod = replace(pod, requests=None, limits=None)
    return replace(pod, qos_class=class_of(pod, level))


def uid_of(pod: Pod, number: int) -> str:
    """Return the uid of the pod at position *number*, an invented one if it has none yet."""
    return pod.uid or f"{pod.namespace}/{pod.name}#{number}"


def to_plain(admission: Admission) -> dict[str, Any]:
    """Return *admission* as dictionaries and lists, in fixed order."""
    return {
        "schema": SCHEMA,
        "policy": admission.policy,
        "scope": admission.scope,
        "pods": [
            {
                "name": pod.name,
                "namespace": pod.namespace,
                "qos": None if pod.qos is None else str(pod.qos),  # YAML knows no enumerations
                "admitted": pod.admitted,
                "reason": pod.reason,
                "message": pod.message,
                "missing": list(pod.missing),
                "why": list(pod.why),
                "changes": list(pod.changes),
                "not_beside": list(pod.not_beside),
                "beside": list(pod.beside),
                "replicas": pod.replicas,
                "admitted_replicas": pod.admitted_replicas,
                "containers": [_plain_container(container) for container in pod.containers],
            }
            for pod in admission.pods
        ],
    }


def _unknown_of(snapshot: Snapshot, pod: Pod) -> Iterator[str]:
    """Yield what is not known about *pod* and its verdict depends on."""
    if pod.qos_class is None:
        yield "its QoS class"
    if any(it.requests is None or it.limits is None for it in pod.containers):
        yield "its containers' requests and limits"
    gates = snapshot.kubelet.feature_gates if snapshot.kubelet is not None else None
    if asks_as_a_pod(pod) and (gates or {}).get(_POD_MANAGERS):
        yield f"an answer for resources of a whole pod under {_POD_MANAGERS}, not worked out"


def _claimed(snapshot: Snapshot, pod: Pod) -> dict[str, tuple[int, ...]]:
    """Return the NUMA nodes of the GPUs that a running pod has by claims, by container.

    A container is missing where they are unknown.
    """
    places = ClaimedGpus(snapshot)
    found = {}
    for running in snapshot.pods or ():
        if (running.namespace, running.name) != (pod.namespace, pod.name):
            continue
        for container in running.containers:
            claimed = [places.gpus(device) for device in container.claimed or ()]
            gpus = [snapshot.gpus[at] for positions in claimed for at in positions or ()]
            nodes = {gpu.numa_node for gpu in gpus}
            known = {node for node in nodes if node is not None}
            if gpus and known == nodes and None not in claimed:
                found[container.name] = tuple(sorted(known))
    return found


def _answer(
    pod: Pod,
    placed: Placed,
    rivals: tuple[str, ...],
    mates: tuple[str, ...],
    claims: Iterable[str],
) -> PodAdmission:
    """Return the answer for *pod*.

    A rejected pod is given nothing, whatever the managers had set aside for its first containers.
    """
    found = placed.replicas
    outcome = found.first
    refusal = outcome.refusal
    company = explain.of_company(rivals, placed.refusal, mates)
    why = [*company, *explain.of_pod(pod, outcome), *claims]
    if refusal is None and found.refusal is not None:
        why.append(f"the next replica is rejected: {found.refusal.reason}: {found.refusal.words}")
    if refusal is None and placed.is_spread:
        why.append("required anti-affinity keeps its replicas on different nodes")
    return PodAdmission(
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos_class,
        admitted=refusal is None,
        reason=refusal.reason if refusal is not None else None,
        message=refusal.message if refusal is not None else None,
        containers=tuple(
            ContainerAdmission(
                name=it.container.name,
                exclusive_cpus=0 if refusal else it.exclusive_cpus,
                hints={
                    name: None if hints is None else hints.shown for name, hints in it.hints.items()
                },
                merged=it.merged,
                cpus=CpuSet() if refusal else it.cpus,
                devices={} if refusal else dict(it.devices),
                memory=() if refusal else it.memory,
                why=tuple(explain.of_container(it)),
            )
            for it in outcome.containers
        ),
        why=tuple(why),
        not_beside=rivals,
        beside=mates,
        replicas=pod.replicas,
        admitted_replicas=found.admitted if pod.replicas else None,
    )


def _plain_container(container: ContainerAdmission) -> dict[str, Any]:
    return {
        "name": container.name,
        "exclusive_cpus": container.exclusive_cpus,
        "hints": {
            name: None if hints is None else [_plain_hint(hint) for hint in hints]
            for name, hints in container.hints.items()
        },
        "merged": None if container.merged is None else _plain_hint(container.merged),
        "cpus": str(container.cpus),
        "devices": {name: list(ids) for name, ids in container.devices.items()},
        "memory": [
            {"kind": block.kind, "bytes": block.size, "numa": list(block.numa_nodes)}
            for block in container.memory
        ],
        "why": list(container.why),
    }


def _plain_hint(hint: Hint) -> dict[str, Any]:
    nodes = hint.numa_nodes
    return {"numa": None if nodes is None else list(nodes), "preferred": hint.preferred}
