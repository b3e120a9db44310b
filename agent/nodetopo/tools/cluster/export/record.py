"""What an export is asked for, and what comes of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

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
"""Forms by scheduler, the usual one first; empty where there is one only.

Versions are those of PodGroup, the oldest first, alike in what is used here: Kubernetes 1.36
(k8s.io/api v0.36.3 scheduling/v1alpha2), and 1.37 (v0.37.1 scheduling/v1alpha3 and v1beta1), which
no longer serves the first. Where the API server can be asked, the newest that it serves is the
usual one.
"""


SCHEDULERS: tuple[str, ...] = tuple(FORMS)
"""In the order of ``--help``."""


CLAIMS = "dra"
"""What ``--for`` calls claims of Dynamic Resource Allocation, which are made from devices instead
of labels."""


CLAIM_FORMS = ("alternatives", "plain")
"""The usual one first."""


DEFAULT_NAME = "gpu-topology"
"""Of the object; short enough for all (Volcano's discovery takes 20 characters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What a person decides about an export.

    Attributes:
        name: of the object; a lower-case DNS label, which every scheduler takes.
        prefix: of this program's own labels.
        levels: label keys, broadest first; empty where they shall be chosen.
        node_labels: by which the nodes were selected; Kueue binds its flavor to them.
        form: one of the scheduler's ``FORMS``; ``None`` for the
            usual one.
        namespace: of objects that live in one; ``None`` for the scheduler's or the client's own.
        size: pods of a group, one to a node; ``None`` for as many as the largest place has nodes.
        cluster_id: Run:ai's UUID of the cluster.
    """

    name: str = DEFAULT_NAME
    prefix: str = DEFAULT_PREFIX
    levels: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    form: str | None = None
    namespace: str | None = None
    size: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A sentence for the person beside the export."""

    kind: Literal["warning", "note"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What one scheduler is to be given.

    Attributes:
        objects: for the API server, in the order in which to create them.
        document: anything else that is written as YAML or JSON; ``None`` if there is none.
        text: a file of a format of its own; ``None`` if there is none.
        remarks: what to know about it, the most important first.
    """

    objects: tuple[Mapping[str, Any], ...] = ()
    document: Any = None
    text: str | None = None
    remarks: tuple[Remark, ...] = ()


_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""What Run:ai and LWS, the strictest, take as a name; the others take more."""


def check_name(name: str) -> None:
    """Check that every consumer takes *name*.

    Raises:
        InputError: one does not.
    """
    if _NAME.fullmatch(name) is None:
        cure = "a letter, then up to 62 of a-z, 0-9 and -, not - at the end"
        raise InputError(f"not a usable name: {name!r}", cure)


def warning(text: str) -> Remark:
    """Return a remark on what may go wrong."""
    return Remark(kind="warning", text=text)


def hint(text: str) -> Remark:
    """Return a remark on how to use what was exported."""
    return Remark(kind="note", text=text)
