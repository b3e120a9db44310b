"""The options and the result of an export."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, field

from nodetopo.components.labels.rules import DEFAULT_PREFIX
from nodetopo.errors import InputError

# Who can be exported to, and in which forms; apart, so that ``--help`` need load no more.

FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kai": (),
        "kueue": (),
        "volcano": ("hypernodes", "discovery"),
        "kubernetes": ("v1alpha2", "v1alpha3", "v1beta1"),
        "grove": (),
        "lws": (),
        "runai": (),
        "slurm": ("yaml", "conf-tree", "conf-block"),
        "topograph": ("engine", "provider"),
    }
)
"""Forms by scheduler, the usual one first; empty with only one.

Versions are PodGroup's, the oldest first, with the same fields used here: Kubernetes 1.36
(k8s.io/api v0.36.3 scheduling/v1alpha2), and 1.37 (v0.37.1 scheduling/v1alpha3 and v1beta1), which
no longer serves the first. If the API server can be asked, its newest served version is the usual
one.
"""


SCHEDULERS: tuple[str, ...] = tuple(FORMS)
"""In the order of ``--help``."""


CLAIMS = "dra"
"""The name in ``--for`` of claims of Dynamic Resource Allocation, which are made from devices
instead of labels.
"""


CLAIM_FORMS = ("alternatives", "plain")
"""The usual one first."""


DEFAULT_NAME = "gpu-topology"
"""Of the object; short enough for all (Volcano's discovery takes 20 characters)."""


class ExportOptions(Struct, frozen=True, kw_only=True):
    """The user's choices about an export."""

    name: str = DEFAULT_NAME  # of the object; a lower-case DNS label, which every scheduler accepts
    prefix: str = DEFAULT_PREFIX  # of our labels
    levels: tuple[str, ...] = ()  # label keys, broadest first; empty to choose them
    # Selector of the nodes; Kueue binds its flavor to them.
    node_labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    form: str | None = None  # one of the scheduler's `FORMS`; None for the usual one
    # Of namespaced objects; None for the default of scheduler or client.
    namespace: str | None = None
    # Pods of a group, one per node; None for the node count of the largest place.
    size: int | None = None
    cluster_id: str | None = None  # Run:ai's UUID of the cluster


class Remark(Struct, frozen=True, kw_only=True):
    """A sentence for the user, in addition to the export."""

    kind: Literal["warning", "note"]
    text: str


class Exported(Struct, frozen=True, kw_only=True):
    """The export for one scheduler."""

    # For the API server, in the order in which to create them.
    objects: tuple[Mapping[str, Any], ...] = ()
    document: Any = None  # any other YAML or JSON; None without one
    text: str | None = None  # a file in another format; None without one
    remarks: tuple[Remark, ...] = ()  # the most important first


_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""Names accepted by Run:ai and LWS, the strictest consumers."""


def check_name(name: str) -> None:
    """Check that every consumer takes *name*."""
    if _NAME.fullmatch(name) is None:
        cure = "a letter, then up to 62 of a-z, 0-9 and -, not - at the end"
        raise InputError(f"not a usable name: {name!r}", cure)


def warning(text: str) -> Remark:
    """Return a remark on a possible problem."""
    return Remark(kind="warning", text=text)


def hint(text: str) -> Remark:
    """Return a remark on using the export."""
    return Remark(kind="note", text=text)
