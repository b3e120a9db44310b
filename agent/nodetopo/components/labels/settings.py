"""The settings of labels: which the node gets, and where they go."""

# ruff: noqa: RUF009 - a setting is a call that returns a dataclass field

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.components.labels.levels import PLATFORMS
from nodetopo.components.labels.outputs.output import (
    FEATURE_FILE,
    NAMESPACE,
    NODE,
    OUTPUTS,
    own_namespace,
)
from nodetopo.components.labels.rules import DEFAULT_PREFIX
from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.groups import CLUSTER, LABELS
from nodetopo.kernel.settings.own import IN_CLUSTER

OFF, ANY = "off", "auto"
"""Values of ``topology_levels`` that do not name a platform: no levels, or any platform's."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LabelSettings(GpuSettings):
    """The settings of the GPUs, which also determine labels, and the settings of labels."""

    publish_labels: bool = CLUSTER(
        False,
        "write labels to the Node; default true with a kubeconfig or in a cluster",
        before="publish_events",
        writes=True,
    )
    label_outputs: tuple[str, ...] = LABELS(
        (NODE,),
        f"outputs of labels, from {', '.join(OUTPUTS)}",
        values.several_of(OUTPUTS),
        "LIST",
        words=OUTPUTS,
    )
    nfd_file: Path = LABELS(
        FEATURE_FILE, "feature file of the output nfd-file", values.absolute_path, "FILE"
    )
    namespace: str = LABELS(
        NAMESPACE,
        "namespace for the output node-feature; default the pod's namespace",
        values.namespace,
        "NAME",
    )
    pod_name: str | None = LABELS(
        None, "pod whose owner owns the NodeFeature; default $POD_NAME", values.text_or_none, "NAME"
    )
    label_prefix: str = LABELS(
        DEFAULT_PREFIX,
        "prefix for nodetopo's own labels",
        values.label_prefix,
        "PREFIX",
    )
    publish_gfd_labels: bool = LABELS(
        True, "also write the keys of GPU Feature Discovery; set false where GFD runs"
    )
    publish_clique: str = LABELS(
        "auto",  # GFD and the DRA driver write it as well, and delete it on their own terms
        "write nvidia.com/gpu.clique; auto: unless another program writes it",
        "auto",
        "always",
        "never",
    )
    topology_levels: str = LABELS(
        OFF,
        "write tier-0, tier-1 … from the Node's labels of this platform, or of any platform",
        OFF,
        ANY,
        *(platform.name for platform in PLATFORMS),
    )
    topology_levels_file: Path | None = LABELS(
        None, "write tier-0, tier-1 … from this file, YAML or JSON", values.path_or_none, "FILE"
    )


def derived(environment: Mapping[str, str]) -> Mapping[str, tuple[object, str]]:
    """Return the settings that follow from the place where the daemon runs, with their origin."""
    found: dict[str, tuple[object, str]] = {}
    if pod := environment.get("POD_NAME"):
        found["pod_name"] = pod, "environment POD_NAME"
    if IN_CLUSTER in environment and (namespace := own_namespace()) is not None:
        found["namespace"] = namespace, "default, of the pod"
    return found
