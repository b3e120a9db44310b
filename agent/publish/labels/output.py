"""What every place that labels go to can do: show what would change, change it, take it back."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from agent.labels.label import DNS_NAME, PART

# What should be published about a node.

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWish:
    """All that one scan, by one set of rules, asks for.

    Attributes:
        labels: value by key.
        unread: keys that are not in *labels* because what they are made of was not read; where
            they are published already they stay.
        annotations: of the Node, value by key; ``None`` leaves those that are there.
    """

    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    unread: frozenset[str] = field(default_factory=frozenset)
    annotations: Mapping[str, str] | None = None


NOTHING = LabelWish(annotations=_NONE)
"""Of a node that is to hold nothing of ours any more."""


# What the outputs of labels are called, where settings and flags name them.

NODE = "node"


NFD_FILE = "nfd-file"


NODE_FEATURE = "node-feature"


OUTPUTS = (NODE, NFD_FILE, NODE_FEATURE)
"""All there are."""


FEATURES_DIRECTORY = Path("/etc/kubernetes/node-feature-discovery/features.d")
"""Of the host, read by NFD's worker there (nfd v0.19, source/local/local.go)."""


FEATURE_FILE = FEATURES_DIRECTORY / "nodetopo"
"""Files are read by name, and a later one's value of a key counts: ours after GFD's, ``gfd``."""


NAMESPACE = "nodetopo"
"""Of the objects in deploy/daemonset."""


NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds its own (Kubernetes, "Accessing the Kubernetes API from a Pod")."""


def own_namespace(file: Path = NAMESPACE_FILE) -> str | None:
    """Return the namespace of this pod; ``None`` outside of one."""
    try:
        return file.read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


_KEY = re.compile(f"(?=[^/]{{1,253}}/|[^/]*$)({DNS_NAME}/)?{PART}", re.ASCII)


_VALUE = re.compile(f"({PART})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChanges:
    """How a place differs from what it should hold; true where it takes a write.

    Attributes:
        added: labels that are missing there.
        changed: key → value there and value wanted.
        removed: own labels that go.
        kept: own labels that are not wanted, but stay: their absence is not proven yet.
        is_there: whether the place holds anything of ours.
        is_stale: whether something besides labels has to be written.
    """

    added: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    is_there: bool = False
    is_stale: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.is_stale)


class LabelOutput(Protocol):
    """A place that labels go to. One thread uses it."""

    @property
    def name(self) -> str:
        """What the setting ``label-outputs`` calls it."""

    @property
    def place(self) -> str:
        """Which one it is, for people: a node, a file, an object."""

    @property
    def needs_api(self) -> bool:
        """Whether it is a part of the API server."""

    @property
    def is_on_node(self) -> bool:
        """Whether it is a part of the Node object, so that a watch of that tells of it."""

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that the place does not take; not sent again."""

    def changes(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Return what :meth:`publish` would change; writes nothing.

        Raises:
            AgentError: the place cannot be read.
        """

    def publish(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Make the place as *wish* has it, by a write only where needed; return what changed.

        Own labels that are absent from the wish are removed only where *complete* says that
        this proves something, and then but for the unread ones. Labels of others are not
        touched.

        Raises:
            AgentError: nothing is certain to be written. An ApiUnavailable carries the pause
                that the API server asked for.
        """

    def remove(self) -> LabelChanges:
        """Take everything of ours away; return what went.

        Raises:
            AgentError: nothing is certain to be gone.
        """

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Tell from the metadata of the Node whether somebody changed what we left there."""


def compare(
    there: Mapping[str, str],
    own: Collection[str],
    wanted: Mapping[str, str],
    *,
    keep: Collection[str] | None,
    is_there: bool,
    is_stale: bool = False,
) -> LabelChanges:
    """Return how *there* differs from *wanted*.

    *own* are our keys in *there*; of those that are not wanted *keep* stay, ``None`` being all.
    """
    surplus = {key: there[key] for key in own if key not in wanted}
    kept = {key: value for key, value in surplus.items() if keep is None or key in keep}
    return LabelChanges(
        added={key: value for key, value in wanted.items() if key not in there},
        changed={
            key: (there[key], value)
            for key, value in wanted.items()
            if key in there and there[key] != value
        },
        removed={key: value for key, value in surplus.items() if key not in kept},
        kept=kept,
        is_there=is_there,
        is_stale=is_stale,
    )


def is_valid(key: str, value: str) -> bool:
    """Tell whether Kubernetes takes the label (API reference, "Labels and Selectors").

    For places that nobody checks before a label has gone through them.
    """
    return bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))
