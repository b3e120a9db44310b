"""What tests ask outputs for."""

from collections.abc import Mapping

from agent.publish.labels.output import DesiredLabels


def wish(labels: Mapping[str, str]) -> DesiredLabels:
    """Return the wish for just these *labels*."""
    return DesiredLabels(labels=labels)
