"""The rules that labels are made by, as the settings have them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from nodetopo.components.labels.rules import LabelRules, MigLabelling, SharedLabel
from nodetopo.components.labels.settings import LabelSettings
from nodetopo.kernel.settings.policies import TimeSlicing

_NO_LEVELS: Mapping[str, str] = MappingProxyType({})


def label_rules(settings: LabelSettings, levels: Mapping[str, str] = _NO_LEVELS) -> LabelRules:
    """Return the rules of *settings* for a node at *levels*, value by tier."""
    slicing = settings.time_slicing or TimeSlicing()
    shared = {}
    for name, count in slicing.replicas.items():
        # Labels stay NVIDIA's in any domain of the resources, and whole GPUs are
        # nvidia.com/gpu under any name.
        word = "gpu" if name == settings.resource_name else name.rpartition("/")[2]
        label = SharedLabel(replicas=count, is_renamed=slicing.is_renamed)
        shared[f"nvidia.com/{word}"] = label
    return LabelRules(
        mig=cast("MigLabelling", settings.mig_strategy),  # a choice of exactly its values
        shared=shared,
        prefix=settings.label_prefix,
        has_gfd=settings.publish_gfd_labels,
        has_clique=settings.publish_clique != "never",
        levels=levels,
    )
