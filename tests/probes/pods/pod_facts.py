"""What a pod that states nothing special is read as."""

from typing import Any

from msgspec.structs import replace

from nodetopo.model.pod import Container, Pod, SharedMemory


def plain_container(**stated: Any) -> Container:
    """Return a container read from a spec, with what it *stated*."""
    plain = Container(
        name="app",
        requests={},
        limits={},
        environment={},
        has_hidden_environment=False,
        is_privileged=False,
        capabilities=(),
        shared_memory=SharedMemory.DEFAULT,
    )
    return replace(plain, **stated)


def plain_pod(**stated: Any) -> Pod:
    """Return a pod read from an object, with what it *stated*."""
    plain = Pod(
        namespace="default",
        name="p",
        uses_host_network=False,
        uses_host_ipc=False,
        uses_host_pid=False,
        node_selector={},
        has_other_devices=False,
    )
    return replace(plain, **stated)
