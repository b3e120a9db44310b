"""What settings say about labels, as the rules that labels are made by."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from agent.config.policies import TimeSlicing
from agent.config.settings import Settings
from agent.labels.rules import LabelRules, MigLabelling, SharedLabel

_GPU = "nvidia.com/gpu"
_NONE: Mapping[str, str] = MappingProxyType({})


def label_rules(settings: Settings, levels: Mapping[str, str] = _NONE) -> LabelRules:
    """Return the rules of *settings* for a node that stands at *levels*, value by tier."""
    slicing = settings.time_slicing or TimeSlicing()
    return LabelRules(
        # A choice of exactly these words (settings_devices.py).
        mig=cast("MigLabelling", settings.mig_strategy),
        shared={
            _labelled(name, settings.resource_name): SharedLabel(
                replicas=count, is_renamed=slicing.is_renamed
            )
            for name, count in slicing.replicas.items()
        },
        prefix=settings.label_prefix,
        has_clique=settings.publish_clique != "never",
        levels=levels,
    )


def _labelled(resource: str, whole: str) -> str:
    """Return the beginning of the labels about *resource*, where whole GPUs are called *whole*.

    Labels stay NVIDIA's, whatever domain the resources are offered in.
    """
    return _GPU if resource == whole else f"nvidia.com/{resource.rpartition('/')[2]}"
