"""What this node's labels should be: a snapshot, settings and the node's place put together."""

from collections.abc import Callable, Mapping

from agent.config.label_rules import label_rules
from agent.config.settings import Settings
from agent.daemon.node_place import NodePlace
from agent.labels.catalogue import is_complete, labels
from agent.labels.completeness import unread
from agent.labels.levels_platform import MAX_TIERS
from agent.labels.remarks import remarks
from agent.labels.rules import LabelRules
from agent.labels.topology_ok import OK_KEY, REASON_KEY, topology_reason
from agent.model.snapshot import Snapshot
from agent.publish.labels.label_wish import LabelWish

Tiers = Mapping[str, str] | None
"""Value by tier; ``None`` where they are not known yet."""


def label_wish(snapshot: Snapshot, rules: LabelRules, *, are_tiers_known: bool = True) -> LabelWish:
    """Return what *snapshot* asks for by *rules*; ``are_tiers_known=False``: tiers stay."""
    found = labels(snapshot, rules)
    doubtful = unread(snapshot, rules)
    if not are_tiers_known:
        doubtful |= {f"{rules.prefix}tier-{tier}" for tier in range(MAX_TIERS)}
    missing = doubtful - found.keys()
    is_told = rules.own(OK_KEY) in found or (
        rules.own(OK_KEY) not in missing and is_complete(snapshot)
    )
    annotations = _reason(snapshot, rules) if is_told else None
    return LabelWish(labels=found, unread=missing, annotations=annotations)


def _reason(snapshot: Snapshot, rules: LabelRules) -> Mapping[str, str]:
    """Return why the topology is not as built, if it is not."""
    reason = topology_reason(snapshot)
    return {} if reason is None else {rules.own(REASON_KEY): reason}


class LabelWishes:
    """Makes wishes by the settings in force, and tells people what no label says, once each.

    Args:
        settings: in force when asked; those of labels that are not of the resources stay.
        place: where the node stands.
        tell: takes each sentence for people.
    """

    def __init__(
        self, settings: Callable[[], Settings], place: NodePlace, tell: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._place = place
        self._tell = tell
        self._asked: tuple[Snapshot, Settings, Tiers] | None = None
        self._remarks: frozenset[str] = frozenset()

    @property
    def needs_node(self) -> bool:
        """Whether a wish is more with the labels of the Node."""
        return self._place.needs_labels

    def note(self, node_labels: Mapping[str, str]) -> None:
        """Take the Node's labels; any thread."""
        self._place.note(node_labels)

    def is_news(self, snapshot: Snapshot) -> bool:
        """Tell whether another wish than the last one may come of *snapshot*."""
        if self._asked is None:
            return True
        last, settings, tiers = self._asked
        is_same = last is snapshot and settings is self._settings()
        return not is_same or tiers != self._place.tiers()

    def of(self, snapshot: Snapshot) -> LabelWish:
        """Return what should be published of *snapshot*."""
        settings, tiers = self._settings(), self._place.tiers()
        self._asked = snapshot, settings, tiers
        rules = label_rules(settings, tiers or {})
        self._remark(frozenset(remarks(snapshot, rules)))
        return label_wish(snapshot, rules, are_tiers_known=tiers is not None)

    def _remark(self, found: frozenset[str]) -> None:
        for text in sorted(found - self._remarks):
            self._tell(text)
        self._remarks = found
