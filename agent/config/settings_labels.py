"""Settings: which labels the node gets, and where they go."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.config import values
from agent.config.option import choice, option
from agent.labels.levels_platform import PLATFORMS
from agent.labels.rules import DEFAULT_PREFIX
from agent.publish.labels.output_names import FEATURE_FILE, NAMESPACE, NODE, OUTPUTS

OFF = "off"
ANY = "auto"


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """The labels."""

    label_outputs: tuple[str, ...] = field(
        default=(NODE,),
        metadata=option(
            values.several_of(OUTPUTS), f"where labels go, of {', '.join(OUTPUTS)}", "LIST"
        ),
    )
    nfd_file: Path = field(
        default=FEATURE_FILE,
        metadata=option(values.absolute_path, "feature file of the output nfd-file", "FILE"),
    )
    namespace: str = field(
        default=NAMESPACE,
        metadata=option(
            values.namespace, "of the output node-feature; default the pod's own", "NAME"
        ),
    )
    pod_name: str | None = field(
        default=None,
        metadata=option(
            values.text_or_none, "pod whose owner owns the NodeFeature; default $POD_NAME", "NAME"
        ),
    )
    label_prefix: str = field(
        default=DEFAULT_PREFIX,
        metadata=option(
            values.label_prefix, "beginning of the labels that are nodetopo's own", "PREFIX"
        ),
    )
    publish_clique: str = field(
        default="auto",  # GFD and the DRA driver write it as well, and delete it on their own terms
        metadata=choice(
            "write nvidia.com/gpu.clique: unless another program does, always, or never",
            "auto",
            "always",
            "never",
        ),
    )
    topology_levels: str = field(
        default=OFF,
        metadata=choice(
            "write tier-0, tier-1 … from the Node's labels of this platform, or of any",
            OFF,
            ANY,
            *(platform.name for platform in PLATFORMS),
        ),
    )
    topology_levels_file: Path | None = field(
        default=None,
        metadata=option(
            values.path_or_none, "write tier-0, tier-1 … from this file, YAML or JSON", "FILE"
        ),
    )
