"""The kubelet's device checkpoint: who holds which device, as it will be read after a crash."""

import base64
import json
from pathlib import Path

from msgspec import Struct

from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb

FILE = "kubelet_internal_checkpoint"
"""In the device plugins' directory (kubelet 1.36 pkg/kubelet/cm/devicemanager/manager.go)."""


class Held(Struct, frozen=True, kw_only=True):
    """The devices of one resource that one container holds.

    Attributes:
        pod: the pod's UID; an entry outlives its pod until the kubelet next allocates.
        ids: in ascending order.
        answer: what the plugin answered to Allocate.
    """

    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]
    answer: pb.ContainerAllocateResponse


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What the file held when it was read.

    Attributes:
        held: every allocation.
        registered: ids of the healthy devices of each resource.
    """

    held: tuple[Held, ...]
    registered: dict[str, frozenset[str]]


def read(directory: Path) -> Checkpoint:
    """Read the checkpoint in the device plugins' *directory*.

    The kubelet replaces the file by rename, so that it is always whole.
    """
    data = json.loads(directory.joinpath(FILE).read_text("utf-8"))["Data"]
    return Checkpoint(
        held=tuple(map(_held, data["PodDeviceEntries"] or ())),
        registered={
            name: frozenset(ids or ()) for name, ids in (data["RegisteredDevices"] or {}).items()
        },
    )


def _held(entry: dict[str, object]) -> Held:
    nodes = entry["DeviceIDs"]
    assert isinstance(nodes, dict)
    return Held(
        pod=str(entry["PodUID"]),
        container=str(entry["ContainerName"]),
        resource=str(entry["ResourceName"]),
        ids=tuple(sorted(name for ids in nodes.values() for name in ids)),
        answer=pb.ContainerAllocateResponse.FromString(base64.b64decode(str(entry["AllocResp"]))),
    )
