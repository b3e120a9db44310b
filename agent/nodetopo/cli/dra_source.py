"""ResourceSlices and ResourceClaims of the cluster, from the API server or from files."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from nodetopo.cli.cluster_source import each_object
from nodetopo.errors import DecodeError
from nodetopo.formats.fields import Object, text
from nodetopo.formats.signatures import Reader
from nodetopo.model.dra import API, PublishedDevice, PublishedPool
from nodetopo.probes.dra import devices_of, newest_of, pools_of
from nodetopo.tools.cluster.node import ClusterNode
from nodetopo.tools.cluster.reach import seen_from

CLAIMS = f"{API}/resourceclaims"

_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
"""Of the API, which write devices alike; ``kubectl`` prints the first from Kubernetes 1.34 on."""

_READERS = {"ResourceSlice": Reader.SLICES, "ResourceClaim": Reader.CLAIMS}


def read_objects(name: str, kind: str) -> tuple[Object, ...]:
    """Return the objects of *kind* in the file *name*, as ``kubectl get … -o json`` prints them."""

    def read(at: str, item: Object) -> Object:
        if item.get("kind") != kind:
            raise DecodeError(at, f"expected a {kind}, found the kind {item.get('kind')!r}")
        if (version := item.get("apiVersion", _VERSIONS[0])) not in _VERSIONS:
            cure = "save it from Kubernetes 1.34 or later"
            raise DecodeError(at, f"of the API {version!r}", cure)
        return item

    return tuple(each_object(name, _READERS[kind], f"a {kind}", read))


class Published(Struct, frozen=True, kw_only=True):
    """The devices and pools that DRA drivers publish in a cluster."""

    # The devices that each node reaches, including incomplete pools.
    by_node: Mapping[str, tuple[PublishedDevice, ...]] = field(default_factory=dict)
    pools: tuple[PublishedPool, ...] = ()  # all pools
    # Pools whose slices select nodes by something else than a name, where no Nodes are known that
    # they could select.
    unplaced: tuple[PublishedPool, ...] = ()

    @property
    def incomplete(self) -> tuple[PublishedPool, ...]:
        """The pools that are left out because slices are missing."""
        return tuple(pool for pool in self.pools if not pool.is_complete)


def published_in(slices: Sequence[Object], nodes: Sequence[ClusterNode] | None) -> Published:
    """Return what *slices* publish for the nodes they name and for *nodes*.

    *nodes* are ``None`` if no Nodes are known.
    """
    by_node: dict[str, list[Object]] = {}
    for each in newest_of(slices):
        named = text(each, "spec", "nodeName")
        if named is not None:
            by_node.setdefault(named, []).append(each)
            continue
        for node in nodes or ():
            seen = seen_from(node, each)
            if seen is not None:
                by_node.setdefault(node.name, []).append(seen)
    pools = pools_of(slices)
    return Published(
        by_node={node: devices_of(own) for node, own in sorted(by_node.items())},
        pools=pools,
        unplaced=tuple(pool for pool in pools if pool.selects_by) if nodes is None else (),
    )
