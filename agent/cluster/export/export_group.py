"""Consumers without an object for topologies, where each group of pods names one label key.

What is printed is such a group, to copy from.
"""

from agent.cluster.export.objects import Family, always, group_key, group_size
from agent.cluster.export.record import Exported, ExportOptions, hint
from agent.cluster.levels import Choice
from agent.errors import InputError

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
        remarks=(hint("each group gets a place of its own: put your containers in its place"),),
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
