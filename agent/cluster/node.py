"""A node of the cluster, as far as its metadata tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """One Node object.

    Attributes:
        name: of the object.
        labels: all of them, whoever wrote them.
        owners: label key → the field managers that own it (``metadata.managedFields``), sorted;
            ``None`` where that was not told, as in what ``kubectl get -o json`` prints without
            ``--show-managed-fields``.
    """

    name: str
    labels: Mapping[str, str]
    owners: Mapping[str, tuple[str, ...]] | None = None
