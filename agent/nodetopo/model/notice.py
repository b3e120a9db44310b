"""Messages reported to people once: in the log, and as a Kubernetes Event."""

from msgspec import Struct


class Notice(Struct, frozen=True, kw_only=True):
    """Something to report once."""

    reason: str  # of a Kubernetes Event, CamelCase
    message: str
    is_warning: bool
    gpu: str | None  # None: the node
    # The subject (a GPU, an HCA, NVML), and after a space what of it, where that has states at the
    # same time. Notices of one subject keep their order.
    key: str
