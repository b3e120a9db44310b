"""An admission as JSON's own types; docs/schema/admit.json describes them."""

from typing import Any

from agent.admission.admit import Admission, ContainerAdmission, PodAdmission
from agent.admission.hints import Hint

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
        "containers": [_container(one) for one in pod.containers],
    }


def _container(one: ContainerAdmission) -> dict[str, Any]:
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
