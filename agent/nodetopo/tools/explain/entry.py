"""One explained word."""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """The kinds of words, in the order of answers; the values are for people."""

    CHECK = "check"
    XID = "XID"
    REJECTION = "kubelet rejection"
    MESSAGE = "message of another program"
    ALERT = "alert"
    EVENT = "Event"
    READINESS = "readiness reason"
    GPU_HEALTH = "GPU health reason"
    HCA_HEALTH = "HCA health reason"
    ALIGNMENT = "alignment word"
    TAINT = "DRA device taint"
    HAND_OVER = "device hand-over"
    LABEL = "label"
    SETTING = "setting"
    METRIC = "metric"


class Entry(Struct, frozen=True, kw_only=True):
    """One meaning of a word.

    Attributes:
        name: as programs write it; ``<…>`` stands for a part that varies.
        aliases: other spellings.
        meaning: one sentence or clause.
        facts: further rows for a person, name and text.
        page: the document and section that has more, below ``docs/``; empty for none.
    """

    kind: Kind
    name: str
    meaning: str
    aliases: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    page: str = ""

    def words(self) -> Iterator[str]:
        """Yield every spelling."""
        yield self.name
        yield from self.aliases
