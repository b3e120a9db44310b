"""What tests ask outputs for."""

from collections.abc import Mapping

from agent.publish.labels.output import LabelWish


def wish(labels: Mapping[str, str]) -> LabelWish:
    """Return the wish for just these *labels*."""
    return LabelWish(labels=labels)
