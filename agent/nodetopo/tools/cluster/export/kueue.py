"""Kueue's Topology, and the ResourceFlavor that binds nodes to it."""

from collections.abc import Mapping

from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.objects import Family, group_key
from nodetopo.tools.cluster.export.record import Exported, ExportOptions, hint
from nodetopo.tools.cluster.levels import Choice

_MAX_LABELS = 8
"""Of a flavor (Kueue v0.19.2 apis/kueue/v1beta2/resourceflavor_types.go); a topology wants one."""

_API = "kueue.x-k8s.io/v1beta2"
"""Served since Kueue 0.15."""


def _objects(choice: Choice, options: ExportOptions) -> Exported:
    level = group_key(choice) if choice.broad else choice.keys[-1]
    return Exported(
        objects=(
            {
                "apiVersion": _API,
                "kind": "Topology",
                "metadata": {"name": options.name},
                "spec": {"levels": [{"nodeLabel": key} for key in choice.keys]},
            },
            {
                "apiVersion": _API,
                "kind": "ResourceFlavor",
                "metadata": {"name": options.name},
                "spec": {
                    "nodeLabels": dict(_flavor_labels(choice, options)),
                    "topologyName": options.name,
                },
            },
        ),
        remarks=(
            hint(
                f"name the flavor {options.name} in a ClusterQueue; in pod templates annotate "
                f"kueue.x-k8s.io/podset-required-topology: {level}"
            ),
        ),
    )


def _flavor_labels(choice: Choice, options: ExportOptions) -> Mapping[str, str]:
    """Return the labels of the selector, or the first that all nodes share.

    The levels keep the other nodes out.
    """
    if len(options.node_labels) > _MAX_LABELS:
        cure = f"a flavor takes {_MAX_LABELS}: select the nodes by fewer"
        raise InputError(f"{len(options.node_labels)} labels in the selector", cure)
    if options.node_labels:
        return options.node_labels
    for key in (
        "nvidia.com/gpu.present",
        f"{options.prefix}interconnect",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.family",
        "kubernetes.io/os",
    ):
        values = {node.labels.get(key) for node in choice.nodes}
        if len(values) == 1 and (value := values.pop()):
            return {key: value}
    cure = "select the nodes of the flavor by KEY=VALUE with --selector"
    raise InputError("the nodes share no label to know them by", cure)


KUEUE = Family(name="kueue", build=_objects)
