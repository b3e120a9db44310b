"""The rows of components on the status page, from memory."""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from nodetopo.deviceplugin.allocation_log import LoggedAllocation
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.plugin import PluginState
from nodetopo.model.gpu_health import HealthView
from nodetopo.model.snapshot import Snapshot


class ResourceState(Struct, frozen=True, kw_only=True):
    """A resource offered to the kubelet."""

    name: str
    healthy: int
    unhealthy: int
    is_registered: bool  # whether the kubelet has it
    registrations: int  # accepted by the kubelet since the start
    endpoint: str | None  # file name of the socket; ``None`` while there is none
    # Why the last attempt to serve or register failed; ``None`` after a success.
    problem: str | None
    placement: str  # policy and bandwidth model, or HCAs and mode, in words
    allocations: int  # containers that got devices since the start

    @classmethod
    def of(
        cls, name: str, devices: Iterable[PluginDevice], plugin: PluginState, placement: str
    ) -> "ResourceState":
        """Return the resource *name*, whose *devices* *plugin* offers."""
        verdicts = [device.is_healthy for device in devices]
        return cls(
            name=name,
            healthy=sum(verdicts),
            unhealthy=len(verdicts) - sum(verdicts),
            is_registered=plugin.is_registered,
            registrations=plugin.registrations,
            endpoint=plugin.endpoint,
            problem=plugin.conflict or plugin.last_problem,
            placement=placement,
            allocations=plugin.allocations,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListedPods:
    """The node with its pods, as the kubelet listed them."""

    # With pods, the kubelet's allocatable resources, and its state files.
    snapshot: Snapshot = dataclasses.field(compare=False)
    at: datetime  # when, UTC


class Shown(Struct, frozen=True, kw_only=True):
    """The rows of one component."""

    settings: tuple[tuple[str, str], ...] = ()  # in force, as (name, value)
    health: HealthView | None = None  # of GPUs; ``None`` where it is not watched
    # (GPU uuid, XID) → occurrences since the start.
    xid_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    resources: tuple[ResourceState, ...] = ()  # offered to the kubelet
    refusals: tuple[str, ...] = ()  # why a resource is not offered, a sentence each
    allocations: tuple[LoggedAllocation, ...] = ()  # the latest
    # Of checks, by name: :class:`nodetopo.checks.engine.Report`.
    reports: Mapping[str, Any] = field(default_factory=dict)
    pods: tuple[ListedPods, ...] = ()  # the latest list of each loop that lists them
    # ``aligned``, ``misaligned`` or ``unknown`` → pods with GPUs or HCAs; ``None`` before the first
    # measurement, or where none is made.
    pods_measured: Mapping[str, int] | None = None
    labels: Mapping[str, str] | None = None  # to be published; ``None`` where labels are off


def merged(parts: Iterable[Shown]) -> Shown:
    """Return the rows of all *parts* together, in their order."""
    parts = tuple(parts)
    return Shown(
        settings=tuple(row for part in parts for row in part.settings),
        health=next((part.health for part in parts if part.health is not None), None),
        xid_counts={key: count for part in parts for key, count in part.xid_counts.items()},
        resources=tuple(row for part in parts for row in part.resources),
        refusals=tuple(row for part in parts for row in part.refusals),
        allocations=tuple(row for part in parts for row in part.allocations),
        reports={name: report for part in parts for name, report in part.reports.items()},
        pods=tuple(listing for part in parts for listing in part.pods),
        pods_measured=next(
            (part.pods_measured for part in parts if part.pods_measured is not None), None
        ),
        labels=next((part.labels for part in parts if part.labels is not None), None),
    )
