"""What tests ask outputs for."""

from collections.abc import Mapping

from agent.publish.labels.label_wish import LabelWish


def wish(labels: Mapping[str, str]) -> LabelWish:
    """Return the wish for just these *labels*."""
    return LabelWish(labels=labels)
