"""The form of a node's published devices, by the cluster's features.

Sources: kubernetes ``pkg/features/kube_features.go`` of 1.34 to 1.37. DRAPartitionableDevices
(shared counters) and DRADeviceTaints are on by default since 1.36; DRAListTypeAttributes is off by
default. Until kubernetes PR 138917, which is in 1.37, kube-scheduler reads the slices with shared
counters of all nodes for each node.
"""

from typing import Final

from msgspec import Struct

CHEAP_COUNTERS: Final = (1, 37)
"""The first release whose scheduler reads only the shared counters of the node that it filters."""

LISTS: Final = (1, 37)
"""The first release whose scheduler matches list-valued attributes, behind a gate. API server 1.36
keeps them with the same gate, but its scheduler does not pass the gate on to the allocator
(kubernetes 1.36 ``pkg/scheduler/framework/plugins/dynamicresources``, AllocatorFeatures)."""


class Form(Struct, frozen=True, kw_only=True):
    """The form of a node's published devices, by the cluster's features."""

    # Sets of GPUs with shared counters are published alongside single GPUs. Without it: single
    # GPUs, and no counters at all.
    has_sets: bool = True
    # Unhealthy and held devices are published with taints; without it they are left out.
    has_taints: bool = True
    has_lists: bool = False  # `numaNode` is a list (KEP-6072, gate DRAListTypeAttributes)
    # Each GPU also has a device for administration. The scheduler evaluates selectors on them for
    # every pod, even on a node without free GPUs.
    has_admin: bool = False
    sizes: tuple[int, ...] = ()  # numbers of GPUs of the published sets; empty for the usual ones


SETS: Final = Form()
"""The form with everything that clusters have by default since :data:`CHEAP_COUNTERS`."""


def form(
    release: tuple[int, int] | None,
    wanted: str,
    sizes: tuple[int, ...],
    dropped: frozenset[str],
    *,
    has_admin: bool = False,
) -> Form:
    """Return the form for a cluster.

    Args:
        release: of the API server, major and minor; ``None`` if unknown, which counts as
            a release before :data:`CHEAP_COUNTERS`.
        wanted: the setting ``dra-devices``: ``auto``, ``gpus`` or ``sets``.
        sizes: the setting ``dra-set-sizes``; empty for the usual ones.
        dropped: fields that the API server did not keep: ``sharedCounters``,
            ``consumesCounters``, ``taints`` or ``lists``.
        has_admin: the setting ``dra-admin-devices``.
    """
    is_cheap = release is not None and release >= CHEAP_COUNTERS
    is_wanted = wanted == "sets" or (wanted == "auto" and is_cheap)
    has_lists = release is not None and release >= LISTS and "lists" not in dropped
    return Form(
        has_sets=is_wanted and not dropped - {"lists"},
        has_taints="taints" not in dropped,
        has_lists=has_lists,
        has_admin=has_admin,
        sizes=sizes,
    )
