"""What a node's Topology Manager would answer for pods, container by container.

The kubelet's managers are played through on what the snapshot tells of the node: hints of the
device, CPU and memory managers, their merge, the verdict, and what each container would be given
(kubernetes 1.36 pkg/kubelet/cm; held against the real kubelet in the lab).

To read on: ``admission_scope`` takes one pod through the managers of an ``admission_node``, which
are ``admission_devices``, ``admission_cpus`` (with ``_take``, ``_spread``, ``_layout``) and
``admission_memory``; ``admission_merge`` is the Topology Manager. ``admission_snapshot`` puts them
together from what is known, by the ``_source`` modules. ``admission_words`` says why,
``admission_change`` what would help.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.admission.device_manager import Preference, lowest_first
from agent.admission.errors import Missing
from agent.admission.explain import of_container, of_pod
from agent.admission.hints import Hint, Hints
from agent.admission.scope import Node, Passage, Share, pass_through
from agent.admission.snapshot import node_of
from agent.model.kubelet_state import HeldMemory
from agent.model.numa import CpuSet
from agent.model.pod import Pod
from agent.model.qos import PodLevel, asks_as_a_pod, class_of, pod_level
from agent.model.snapshot import Snapshot

__all__ = ("Admission", "ContainerAdmission", "Hint", "PodAdmission", "admit", "lowest_first")


MOST_CONTAINERS = 500
"""Of all pods together that are worked out: ten seconds on a machine of eight NUMA nodes."""


_POD_MANAGERS = "PodLevelResourceManagers"
"""Feature gate, off by default up to 1.37, that pins pods with resources of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAdmission:
    """What became of one container; empty where the kubelet did not come to it.

    Attributes:
        exclusive_cpus: how many CPUs it is to have for itself.
        hints: of all managers, by resource; in scope ``pod``, the pod's.
        merged: what they came to; ``None`` under policy ``none``.
        cpus, devices, memory: what it would be given; of devices that are alike for the kubelet,
            those that its plugin prefers.
        why: sentences without full stop.
    """

    name: str
    exclusive_cpus: int
    hints: Hints = field(default_factory=dict)
    merged: Hint | None = None
    cpus: CpuSet = field(default_factory=CpuSet)
    devices: "dict[str, tuple[str, ...]]" = field(default_factory=dict)
    memory: tuple[HeldMemory, ...] = ()
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAdmission:
    """What became of one pod.

    Attributes:
        qos: its class.
        admitted: ``None`` where something is missing.
        reason, message: as the kubelet would write them into its status; ``None`` unless rejected.
        missing: what a verdict would need.
        changes: each of which alone would make it fit, smallest first; filled by
            :func:`agent.admission.suggestions.with_changes`.
    """

    namespace: str
    name: str
    qos: str | None
    admitted: bool | None
    reason: str | None = None
    message: str | None = None
    containers: tuple[ContainerAdmission, ...] = ()
    why: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What became of all pods.

    Attributes:
        policy, scope: of the Topology Manager; ``None`` where not known.
    """

    policy: str | None
    scope: str | None
    pods: tuple[PodAdmission, ...]


def admit(
    snapshot: Snapshot, pods: Sequence[Pod], *, prefer: Preference = lowest_first
) -> Admission:
    """Admit *pods* one after the other, each on what those before it left.

    Args:
        snapshot: the node with its kubelet and the pods that it runs. A pod of it with the uid of
            one of *pods* holds nothing.
        pods: as the kubelet would see them, defaulted by the API server.
        prefer: what the device plugins prefer.
    """
    settings = snapshot.kubelet
    return Admission(
        policy=settings.topology_manager_policy if settings is not None else None,
        scope=settings.topology_manager_scope if settings is not None else None,
        pods=tuple(_admitted(snapshot, [classed(snapshot, pod) for pod in pods], prefer)),
    )


def classed(snapshot: Snapshot, pod: Pod) -> Pod:
    """Return *pod* as the kubelet of *snapshot* would see it, with its QoS class if it is clear."""
    settings, status = snapshot.kubelet, snapshot.node_status
    version = settings.version if settings is not None else None
    version = version or (status.kubelet_version if status is not None else None)
    level = pod_level(version, settings.feature_gates if settings is not None else None)
    if level is PodLevel.NEVER:  # the API server drops the field
        pod = replace(pod, requests=None, limits=None)
    return replace(pod, qos_class=class_of(pod, level))


def _admitted(
    snapshot: Snapshot, pods: Sequence[Pod], prefer: Preference
) -> Iterator[PodAdmission]:
    node: Node | None = None
    missing: tuple[str, ...] = ()
    try:
        node = node_of(snapshot, pods)
    except Missing as error:
        missing = error.args
    if sum(len(pod.containers) for pod in pods) > MOST_CONTAINERS:
        missing += (f"an answer for more than {MOST_CONTAINERS} containers at once",)
    for number, pod in enumerate(pods):
        lacking = (*missing, *_lacking(snapshot, pod))
        if node is None or lacking:
            yield _unknown(pod, lacking)
            # What an unknown verdict would leave for the pods after it is not known either.
            missing = missing or (f"the verdict on {pod.namespace}/{pod.name}",)
            continue
        passage = pass_through(node, pod, uid_of(pod, number), prefer)
        node = passage.node
        yield _told(pod, passage)


def uid_of(pod: Pod, number: int) -> str:
    """Return the uid of the pod at position *number*, made up for one that has none yet."""
    return pod.uid or f"{pod.namespace}/{pod.name}#{number}"


def _lacking(snapshot: Snapshot, pod: Pod) -> Iterable[str]:
    if pod.qos_class is None:
        yield "its QoS class"
    if any(one.requests is None or one.limits is None for one in pod.containers):
        yield "its containers' requests and limits"
    gates = snapshot.kubelet.feature_gates if snapshot.kubelet is not None else None
    if asks_as_a_pod(pod) and (gates or {}).get(_POD_MANAGERS):
        yield f"an answer for resources of a whole pod under {_POD_MANAGERS}, not worked out"


def _unknown(pod: Pod, missing: tuple[str, ...]) -> PodAdmission:
    return PodAdmission(
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos_class,
        admitted=None,
        missing=missing,
    )


def _told(pod: Pod, passage: Passage) -> PodAdmission:
    refusal = passage.refusal
    return PodAdmission(
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos_class,
        admitted=refusal is None,
        reason=refusal.reason if refusal is not None else None,
        message=refusal.message if refusal is not None else None,
        containers=tuple(_container(share) for share in passage.shares),
        why=of_pod(pod, passage),
    )


def _container(share: Share) -> ContainerAdmission:
    return ContainerAdmission(
        name=share.container.name,
        exclusive_cpus=share.exclusive_cpus,
        hints=share.hints,
        merged=share.merged,
        cpus=share.cpus,
        devices=dict(share.devices),
        memory=share.memory,
        why=of_container(share),
    )


# An admission as JSON's own types; docs/reference/schema/admit.json describes them.

SCHEMA = "nodetopo/admit/v1"


def to_plain(admission: Admission) -> dict[str, Any]:
    """Return *admission* as dictionaries and lists, in fixed order."""
    return {
        "schema": SCHEMA,
        "policy": admission.policy,
        "scope": admission.scope,
        "pods": [_pod(pod) for pod in admission.pods],
    }


def _pod(pod: PodAdmission) -> dict[str, Any]:
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "qos": None if pod.qos is None else str(pod.qos),  # YAML knows no enumerations
        "admitted": pod.admitted,
        "reason": pod.reason,
        "message": pod.message,
        "missing": list(pod.missing),
        "why": list(pod.why),
        "changes": list(pod.changes),
        "containers": [_plain_container(one) for one in pod.containers],
    }


def _plain_container(one: ContainerAdmission) -> dict[str, Any]:
    return {
        "name": one.name,
        "exclusive_cpus": one.exclusive_cpus,
        "hints": {name: _hints(hints) for name, hints in one.hints.items()},
        "merged": None if one.merged is None else _hint(one.merged),
        "cpus": str(one.cpus),
        "devices": {name: list(ids) for name, ids in one.devices.items()},
        "memory": [
            {"kind": it.kind, "bytes": it.size, "numa": list(it.numa_nodes)} for it in one.memory
        ],
        "why": list(one.why),
    }


def _hints(hints: tuple[Hint, ...] | None) -> list[dict[str, Any]] | None:
    return None if hints is None else [_hint(hint) for hint in hints]


def _hint(hint: Hint) -> dict[str, Any]:
    nodes = hint.numa_nodes
    return {"numa": None if nodes is None else list(nodes), "preferred": hint.preferred}
