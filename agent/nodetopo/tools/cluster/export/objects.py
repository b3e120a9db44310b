"""A consumer of topologies: its limits, and the builder of its objects."""

from collections.abc import Callable

from msgspec import Struct

from nodetopo.components.labels.levels import REGION, ZONE
from nodetopo.errors import InputError, NothingFound
from nodetopo.tools.cluster.export.record import Exported, ExportOptions, hint
from nodetopo.tools.cluster.levels import Choice
from nodetopo.tools.cluster.places import places

MAX_KEY = 316
"""Characters of a label key (maxLength of nodeLabel in the CRDs of KAI v0.17 and Kueue v0.19.2)."""


def always(_options: ExportOptions) -> bool:
    return True


def never(_options: ExportOptions) -> bool:
    return False


class Family(Struct, frozen=True, kw_only=True):
    """One consumer."""

    name: str  # in --for
    # Remarks in its answer are specific to the consumer.
    build: Callable[[Choice, ExportOptions], Exported]
    max_key: int = MAX_KEY  # most characters of a level's key
    joins_by_dots: bool = False  # names a place by its dot-joined values
    # Treats equal values as the same place everywhere.
    merges: Callable[[ExportOptions], bool] = never


def group_key(choice: Choice) -> str:
    """Return the level that keeps a group together: the narrowest that joins nodes.

    If none does, as with NVLink within single machines, it is the narrowest above the single node;
    a region or a zone is only the last resort.
    """
    narrow = narrowest(choice)
    close = tuple(key for key in choice.broad if key not in {REGION, ZONE})
    return next((key for key in reversed(close) if choice.joins(key)), narrow)


def narrowest(choice: Choice) -> str:
    """Return the narrowest level above the single node."""
    if not choice.broad:
        cure = "label the nodes, narrow them with --selector, or name keys with --levels"
        raise NothingFound("no level above the single node", cure)
    return choice.broad[-1]


def group_size(choice: Choice, options: ExportOptions) -> int:
    """Return the pods of a group: as asked for, or one for each node of the largest place."""
    if options.size is not None:
        return options.size
    return max(len(place.nodes) for place in places(choice.nodes, (group_key(choice),)))


# Consumers without an object for topologies, where each group of pods names one label key.
#
# What is printed is such a group, to copy from.

_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""LWS v0.10.0 api/leaderworkerset/v1/leaderworkerset_types.go."""


_PAUSE = "registry.k8s.io/pause:3.10"


def _pod_group(choice: Choice, options: ExportOptions) -> Exported:
    size = _size(choice, options)
    return Exported(
        objects=(
            {
                "apiVersion": f"scheduling.k8s.io/{options.form}",
                "kind": "PodGroup",
                "metadata": _metadata(options),
                "spec": {
                    "schedulingPolicy": {"gang": {"minCount": size}},
                    "schedulingConstraints": {"topology": [{"key": group_key(choice)}]},
                },
            },
        ),
        remarks=(
            hint(
                "wants the feature gates GenericWorkload and TopologyAwareWorkloadScheduling; "
                f"pods join by spec.schedulingGroup.podGroupName: {options.name}"
            ),
        ),
    )


def _leader_worker_set(choice: Choice, options: ExportOptions) -> Exported:
    container = {"name": "worker", "image": _PAUSE}
    worker = {"spec": {"containers": [container]}}
    return Exported(
        objects=(
            {
                "apiVersion": "leaderworkerset.x-k8s.io/v1",
                "kind": "LeaderWorkerSet",
                "metadata": {**_metadata(options), "annotations": {_EXCLUSIVE: group_key(choice)}},
                "spec": {
                    "replicas": 1,
                    "leaderWorkerTemplate": {
                        "size": _size(choice, options),
                        "workerTemplate": worker,
                    },
                },
            },
        ),
        remarks=(hint("each group gets a separate place: put your containers in its place"),),
    )


def _metadata(options: ExportOptions) -> dict[str, str]:
    place = {} if options.namespace is None else {"namespace": options.namespace}
    return {"name": options.name, **place}


def _size(choice: Choice, options: ExportOptions) -> int:
    size = group_size(choice, options)
    if size < 1:
        raise InputError(f"--size {size}", "a group has one pod at least")
    return size


KUBERNETES = Family(name="kubernetes", build=_pod_group, merges=always)


LWS = Family(name="lws", build=_leader_worker_set, merges=always)
