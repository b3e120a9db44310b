"""Messages reported to people once: in the log, and as a Kubernetes Event."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something to report once.

    Attributes:
        reason: CamelCase, of a Kubernetes Event.
        message: for a person.
        gpu: the GPU; ``None`` for the node.
        key: equal for notices that say the same about the same GPU.
    """

    reason: str
    message: str
    is_warning: bool
    gpu: str | None
    key: str
