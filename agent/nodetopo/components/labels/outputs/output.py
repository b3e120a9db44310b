"""The interface of every label output: preview changes, publish, remove."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct, field

from nodetopo.formats.names import DNS_NAME, PART

NODE = "node"
NFD_FILE = "nfd-file"
NODE_FEATURE = "node-feature"

OUTPUTS = (NODE, NFD_FILE, NODE_FEATURE)
"""The names of all outputs, as in the setting ``label-outputs``."""

FEATURES_DIRECTORY = Path("/etc/kubernetes/node-feature-discovery/features.d")
"""Of the host, read by NFD's worker there (nfd v0.19, source/local/local.go)."""

FEATURE_FILE = FEATURES_DIRECTORY / "nodetopo"
"""NFD reads files by name, and a later file overrides: ours comes after GFD's, ``gfd``."""

NAMESPACE = "nodetopo"
"""Of the objects in deploy/daemonset."""

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""A pod's own namespace (Kubernetes, "Accessing the Kubernetes API from a Pod")."""

_KEY = re.compile(f"(?=[^/]{{1,253}}/|[^/]*$)({DNS_NAME}/)?{PART}", re.ASCII)
_VALUE = re.compile(f"({PART})?", re.ASCII)

_NONE: Mapping[str, str] = MappingProxyType({})


class DesiredLabels(Struct, frozen=True, kw_only=True):
    """The labels and annotations of a node, from one scan and one set of rules."""

    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)  # value by key
    # Keys missing from *labels* because their facts were not read; published ones stay.
    unread: frozenset[str] = field(default_factory=frozenset)
    # Of the Node, value by key; ``None`` leaves the existing ones.
    annotations: Mapping[str, str] | None = None


NOTHING = DesiredLabels(annotations=_NONE)
"""For a node without anything of ours."""


class LabelChanges(Struct, frozen=True, kw_only=True):
    """The differences between an output and the desired labels; true if a write is needed."""

    added: Mapping[str, str] = field(default_factory=dict)  # missing labels
    # Key → present value and wanted value.
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)  # our labels to remove
    # Our labels that are not wanted, but stay: their absence is not proven yet.
    kept: Mapping[str, str] = field(default_factory=dict)
    is_there: bool = False  # whether the output holds anything of ours
    is_stale: bool = False  # whether a write is needed for other reasons than labels

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.is_stale)


class LabelOutput(Protocol):
    """A place that labels are published to. One thread uses it."""

    @property
    def name(self) -> str:
        """Its name in the setting ``label-outputs``."""

    @property
    def place(self) -> str:
        """The node, file or object, for people."""

    @property
    def needs_api(self) -> bool:
        """Whether the output is stored in the API server."""

    @property
    def is_on_node(self) -> bool:
        """Whether the output is part of the Node object, so that a Node watch shows changes."""

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that the output does not take; not sent again."""

    def changes(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Return the changes that :meth:`publish` would make, without writing.

        Raises:
            AgentError: the output cannot be read.
        """

    def publish(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Publish *desired*, writing only if needed; return the changes.

        Our labels absent from *desired* are removed only if the evidence is *complete* and they are
        not unread. Others' labels are not touched.

        Raises:
            AgentError: the write may have failed. An ApiUnavailable carries the pause requested by
                the API server.
        """

    def remove(self) -> LabelChanges:
        """Remove everything of ours; return the changes.

        Raises:
            AgentError: it may still exist.
        """

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Return whether the Node's metadata shows foreign changes to our labels."""


def compare(
    present: Mapping[str, str],
    own: Collection[str],
    wanted: Mapping[str, str],
    *,
    keep: Collection[str] | None,
    is_there: bool,
    is_stale: bool = False,
) -> LabelChanges:
    """Return the differences between *present* and *wanted*.

    *own* are our keys in *present*; unwanted keys in *keep* stay, or all for ``None``.
    """
    surplus = {key: present[key] for key in own if key not in wanted}
    kept = {key: value for key, value in surplus.items() if keep is None or key in keep}
    return LabelChanges(
        added={key: value for key, value in wanted.items() if key not in present},
        changed={
            key: (present[key], value)
            for key, value in wanted.items()
            if key in present and present[key] != value
        },
        removed={key: value for key, value in surplus.items() if key not in kept},
        kept=kept,
        is_there=is_there,
        is_stale=is_stale,
    )


def is_valid(key: str, value: str) -> bool:
    """Return whether Kubernetes accepts the label (API reference, "Labels and Selectors").

    For outputs that do not check labels themselves.
    """
    return bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))


def own_namespace(file: Path = NAMESPACE_FILE) -> str | None:
    """Return the namespace of this pod; ``None`` outside of one."""
    try:
        return file.read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
