"""Metrics of what the kubelet was offered, and took."""

from agent.publish.metrics.family import Family, Kind, by_name, by_two_names, present

KUBELET_FAMILIES = (
    Family(
        name="registered",
        text="Whether the kubelet has the resource registered now",
        labels=("resource",),
        samples=lambda state: by_name(state.is_registered),
    ),
    Family(
        name="registrations",
        text="Registrations that the kubelet accepted",
        labels=("resource",),
        kind=Kind.COUNTER,
        samples=lambda state: by_name(state.registrations),
    ),
    Family(
        name="resource_conflict",
        text="Whether another device plugin has taken the resource",
        labels=("resource",),
        samples=lambda state: present(state.conflicts, state.is_registered),
    ),
    Family(
        name="devices",
        text="Devices offered, replicas included: those `healthy` are allocatable",
        labels=("resource", "health"),
        samples=lambda state: by_two_names(state.devices),
    ),
    Family(
        name="allocations",
        text="Containers that were given devices",
        labels=("resource",),
        kind=Kind.COUNTER,
        samples=lambda state: by_name(state.allocations),
    ),
)
