"""``kubelet_internal_checkpoint``: kubernetes pkg/kubelet/cm/devicemanager/checkpoint.

In this form since 1.20, up to 1.37. What the plugins answered (``AllocResp``) is passed over.
"""

from collections.abc import Iterator
from typing import Any

from agent.formats.json_shape import json_items, json_map, json_text
from agent.model.kubelet_state import DeviceState, HeldDevices


def device_state(value: Any) -> DeviceState:
    """Return what the file's JSON says, in its order; ids sorted.

    Raises:
        DecodeError: it is not of this form.
    """
    data = json_map(json_map(value, "").get("Data"), "Data")
    registered = json_map(data.get("RegisteredDevices"), "Data.RegisteredDevices")
    entries = json_items(data.get("PodDeviceEntries"), "Data.PodDeviceEntries")
    return DeviceState(
        held=tuple(_held(entry, path) for entry, path in entries),
        registered={
            resource: _ids(registered[resource], f"Data.RegisteredDevices.{resource}")
            for resource in sorted(registered)
        },
    )


def _held(value: Any, path: str) -> HeldDevices:
    entry = json_map(value, path)
    by_node = json_map(entry.get("DeviceIDs"), f"{path}.DeviceIDs")

    def text(field: str) -> str:
        return json_text(entry.get(field), f"{path}.{field}")

    return HeldDevices(
        pod_uid=text("PodUID"),
        container=text("ContainerName"),
        resource=text("ResourceName"),
        ids={node: _ids(by_node[node], f"{path}.DeviceIDs.{node}") for node in sorted(by_node)},
    )


def _ids(value: Any, path: str) -> tuple[str, ...]:
    return tuple(sorted(_texts(value, path)))


def _texts(value: Any, path: str) -> Iterator[str]:
    return (json_text(item, at) for item, at in json_items(value, path))
