"""The summary of the daemon once the kubelet has the devices."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from nodetopo.allocation.allocator import Allocation
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.label_rules import label_rules
from nodetopo.deviceplugin.plugin import PluginState
from nodetopo.deviceplugin.resources import Refusal, Resource
from nodetopo.errors import UnreadableError
from nodetopo.kernel.component import Kernel
from nodetopo.kernel.offers import NoCompanion
from nodetopo.kernel.target import Target
from nodetopo.model.snapshot import Snapshot

if TYPE_CHECKING:  # the component rdma, where HCAs are offered
    from nodetopo.cli.startup_pools import ReadyPool

TIMEOUT_S = 30.0
"""How long `--once` waits until the kubelet has the devices; a running one takes under 1 s."""

STEP_S = 0.05

SHOWN_SIZE = 4
"""Devices of the requests that the page shows: half a usual machine."""


class ReadyResource(Struct, frozen=True, kw_only=True):
    """A registered resource."""

    resource: Resource
    plugin: PluginState
    # Our answer to a request for four devices (all, if there are fewer; one, if that is the limit),
    # with its reasons; ``None`` if none is usable.
    placement: Allocation | None
    # The stand-in kubelet's answer to the same; ``None`` with a real kubelet, which asks when a pod
    # is admitted.
    preferred: tuple[str, ...] | None


class Ready(Struct, frozen=True, kw_only=True):
    """The content of the summary."""

    target: Target
    snapshot: Snapshot
    labels: Mapping[str, str]  # of the node, without its position in the cluster
    # Empty only if no GPUs are offered; *why_none* has the reason.
    resources: tuple[ReadyResource, ...]
    pools: "tuple[ReadyPool, ...]"  # of HCAs; empty if no setting names any
    refusals: tuple[Refusal, ...]  # of resources or devices
    why_none: str
    metrics_url: str | None  # ``None`` if metrics are off or the address is in use


def wait_ready(kernel: Kernel, stopping: threading.Event) -> Ready | None:
    """Wait until the kubelet has the offered devices; with ``once`` for :data:`TIMEOUT_S`.

    Returns:
        The summary; ``None`` if *stopping* was set before.
    """
    settings, target, plugins = kernel.settings, kernel.target, kernel.gpus
    assert isinstance(plugins, PluginSet)

    def is_ready() -> bool:
        states = plugins.states
        is_offered = bool(states) or _offers_none(settings)
        return (
            plugins.taken is not None
            and is_offered
            and all(
                state.is_registered and target.kubelet_has(name) for name, state in states.items()
            )
        )

    rounds = round(TIMEOUT_S / STEP_S)
    while rounds and not is_ready() and not stopping.wait(STEP_S):
        if settings.once:  # without it, wait as long as it takes
            if not _offers_none(settings):
                _check_for_gpus(plugins)
            rounds -= 1
    current = kernel.store.current
    if stopping.is_set() or current is None:
        return None
    if not is_ready():
        raise UnreadableError(
            f"no kubelet took the GPUs within {TIMEOUT_S:.0f} s",
            f"is one running, and does it listen in {target.socket_dir}?",
        )

    slicing = settings.time_slicing
    is_one_each = slicing is not None and slicing.fails_requests_greater_than_one
    resources = []
    for served in plugins.served:
        size = 1 if is_one_each and served.resource.is_shared else SHOWN_SIZE
        usable = sum(device.is_healthy for device in served.resource.devices)
        resources.append(
            ReadyResource(
                resource=served.resource,
                plugin=served.plugin.state,
                placement=served.placement.example(size),
                preferred=target.preferred(min(size, usable), served.resource.name),
            )
        )
    return Ready(
        target=target,
        snapshot=current.snapshot,
        labels=labels(current.snapshot, label_rules(settings)),
        resources=tuple(resources),
        pools=_pools(kernel),
        refusals=plugins.refusals,
        why_none="dra is on" if settings.dra else f"offer-gpus is {settings.offer_gpus}",
        metrics_url=kernel.metrics_url,
    )


def _pools(kernel: Kernel) -> "tuple[ReadyPool, ...]":
    """Return the pools of HCAs that the kubelet has; none where no HCA is offered."""
    if isinstance(kernel.companion, NoCompanion):
        return ()
    from nodetopo.cli.startup_pools import ready_pools  # noqa: PLC0415 - see above

    return ready_pools(kernel, SHOWN_SIZE)


def _offers_none(settings: GpuSettings) -> bool:
    """Return whether the settings offer no GPU by device plugin, whatever the node has."""
    return settings.offer_gpus == "never" or settings.dra


def _check_for_gpus(plugins: PluginSet) -> None:
    """Raise UnreadableError if the node was scanned without any device to offer."""
    snapshot = plugins.taken
    if snapshot is None or plugins.states:
        return
    if refused := [refusal.reason for refusal in plugins.refusals]:
        raise UnreadableError(
            f"nothing is offered: {'; '.join(refused)}",
            "correct that, or what asks for it",
        )
    reasons = [issue.reason for issue in snapshot.issues if issue.probe == "nvml"]
    raise UnreadableError(
        f"no GPU was found: {'; '.join(reasons) or 'NVML lists none'}",
        "install or repair the NVIDIA driver, or try `nodetopo run --once --or-simulate`",
    )
