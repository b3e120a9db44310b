"""Settings: what is written to the API server, and what is read from it."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.config import values
from agent.config.option import option, switch

FALLBACKS = ("named", "single", "empty")
"""Which named config serves where neither a label nor a default names one, the first that can
(k8s-device-plugin v0.19.0, cmd/config-manager): that called ``default``, the only one there is,
none."""

CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""Of the Node, as NVIDIA's (the same place)."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The Node object: its labels, its Events, and the config that it names."""

    kubeconfig: Path | None = field(
        default=None,
        metadata=option(values.path, "how to reach the API server; default the pod's own", "FILE"),
    )
    publish_labels: bool = field(
        default=False,
        metadata=switch("write labels to the Node; default yes with a kubeconfig or in a cluster"),
    )
    publish_events: bool = field(
        default=False,
        metadata=switch("write Events about the Node; default as publish-labels"),
    )
    publish_zones: bool = field(
        default=False,  # another program may, and the object's definition is not in every cluster
        metadata=switch("write what each NUMA node has left, as a NodeResourceTopology object"),
    )
    annotate_pods: bool = field(
        default=False,  # takes the right to patch pods
        metadata=switch("write onto each pod which NUMA nodes it got, as KAI reads it"),
    )
    config_dir: Path | None = field(
        default=None,
        metadata=option(
            values.path_or_none, "directory of named configs, one of which this node takes", "DIR"
        ),
    )
    config_label: str = field(
        default=CONFIG_LABEL,
        metadata=option(values.label_key, "label of the Node that names its config", "KEY"),
    )
    default_config: str | None = field(
        default=None,
        metadata=option(values.text_or_none, "named config of a node without that label", "NAME"),
    )
    config_fallbacks: tuple[str, ...] = field(
        default=("named", "single"),  # as NVIDIA's Helm chart has it
        metadata=option(
            values.several_of(FALLBACKS),
            f"which named config serves without either, the first that can: {', '.join(FALLBACKS)}",
            "LIST",
        ),
    )
