"""What the status of a pod tells of its containers: their ids, and devices that fail."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.formats.fields import Object, items, text_at

_LISTS = ("initContainerStatuses", "containerStatuses")
_GOOD = "Healthy"
"""``ResourceHealthStatus`` of k8s.io/api core/v1; the others are Unhealthy and Unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """Of one container.

    Attributes:
        id: as its runtime names it; ``None`` unless it runs.
        unhealthy: devices that are not healthy; ``None`` where the API server does not tell of
            devices (gate ``ResourceHealthStatus``).
    """

    id: str | None = None
    unhealthy: tuple[str, ...] | None = None


UNTOLD = ContainerStatus()
"""Of a container that has not been started, and of one in a manifest."""


def statuses(status: Object) -> dict[str, ContainerStatus]:
    """Return name → what the pod's *status* tells of that container.

    Raises:
        DecodeError: it has not the shape of a status.
    """
    return {
        text_at(item, "name", at) or "": ContainerStatus(
            id=_id(item, at), unhealthy=_unhealthy(item, at)
        )
        for field in _LISTS
        for at, item in items(status, field, "status")
    }


def _id(item: Object, at: str) -> str | None:
    state = item.get("state")
    is_running = isinstance(state, dict) and state.get("running") is not None
    whole = text_at(item, "containerID", at) or ""
    return whole.partition("://")[2] or None if is_running else None


def _unhealthy(item: Object, at: str) -> tuple[str, ...] | None:
    if item.get("allocatedResourcesStatus") is None:
        return None
    return tuple(_bad_devices(item, at))


def _bad_devices(item: Object, at: str) -> Iterator[str]:
    for place, resource in items(item, "allocatedResourcesStatus", at):
        for where, device in items(resource, "resources", place):
            if text_at(device, "health", where) != _GOOD:
                yield text_at(device, "resourceID", where) or "a device without id"
