"""What tests ask outputs for."""

from collections.abc import Mapping

from nodetopo.components.labels.outputs.output import DesiredLabels


def desired(labels: Mapping[str, str]) -> DesiredLabels:
    """Return the desired for just these *labels*."""
    return DesiredLabels(labels=labels)
