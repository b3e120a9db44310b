"""What keeps labels back that NFD would not pass on as they are."""

from collections.abc import Mapping

import structlog

from agent.publish.labels.output import is_valid


class LabelScreen:
    """For places that do not check what is put there, so that no bad label takes others with it.

    NFD's master skips bad labels one by one, but not all: one below a domain that its settings
    both deny and allow, as ``denyLabelNs: ["*"]`` does, is sent on unseen, and the API server then
    refuses all labels of the Node (nfd v0.19.0, pkg/nfd-master/nfd-master.go, filterFeatureLabel).
    """

    def __init__(self, place: str) -> None:
        """Name *place* in the log."""
        self._place = place
        self._refused: frozenset[tuple[str, str]] = frozenset()

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """All that was kept back so far, as (key, value)."""
        return self._refused

    def passing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return those of *labels* that may go on; the others are logged, once."""
        refused = frozenset(item for item in labels.items() if not passes(*item))
        for key, value in sorted(refused - self._refused):
            structlog.get_logger().error("label refused", place=self._place, key=key, value=value)
        self._refused |= refused
        return {key: value for key, value in labels.items() if (key, value) not in refused}


def passes(key: str, value: str) -> bool:
    """Tell whether Kubernetes takes the label, and NFD leaves its key alone.

    To one without a domain NFD adds its own (the same file, addNsToMapKeys).
    """
    return "/" in key and is_valid(key, value)
