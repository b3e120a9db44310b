"""Pods as the kubelet lists them: their containers, and what each has."""

from collections.abc import Mapping, Sequence

from nodetopo.model.pod import AssignedDevices, Container, Pod

Held = Mapping[str, Sequence[str]]
"""Device ids by resource."""


def listed_pod(namespace: str, name: str, containers: Mapping[str, Held]) -> Pod:
    """Return a pod with what each of its *containers* has."""
    return Pod(
        namespace=namespace,
        name=name,
        containers=tuple(
            Container(
                name=container,
                devices=tuple(
                    AssignedDevices(resource=resource, ids=tuple(ids))
                    for resource, ids in held.items()
                ),
            )
            for container, held in containers.items()
        ),
    )
