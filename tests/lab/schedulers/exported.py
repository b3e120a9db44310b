"""What ``nodetopo export`` makes of a cluster whose Nodes are read as the command reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodetopo.kubeapi.apply import connection
from nodetopo.tools.cluster.cleanup import cluster_nodes
from nodetopo.tools.cluster.export.formats import Exported, ExportOptions, export
from tests.lab.api import Object
from tests.lab.cluster import Cluster


def export_of(cluster: Cluster, scheduler: str, name: str, form: str | None = None) -> Exported:
    """Return what is exported for *scheduler*; *name* is of the topology."""
    nodes = tuple(cluster_nodes(connection(cluster.kubeconfig)))
    return export(scheduler, nodes, ExportOptions(name=name, form=form))


def exported(cluster: Cluster, scheduler: str, name: str) -> tuple[Object, ...]:
    """Return the objects of that, in order of creation."""
    return tuple(dict(one) for one in export_of(cluster, scheduler, name).objects)


def lost(sent: Any, stored: Any, where: str = "") -> list[str]:
    """Return where *stored* lacks or changes what was *sent*; what a server adds is no loss."""
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        return [one for key in sent for one in lost(sent[key], stored.get(key), f"{where}.{key}")]
    if _is_list(sent) and _is_list(stored) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [one for at, pair in pairs for one in lost(*pair, f"{where}[{at}]")]
    return [] if sent == stored else [where]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
