"""The API server, as commands about the whole cluster ask it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nodetopo.cli.output import progress
from nodetopo.errors import ApiUnavailable
from nodetopo.formats.fields import Object
from nodetopo.kubeapi.apply import connection
from nodetopo.kubeapi.lists import NotServed, list_objects, serves
from nodetopo.model.dra import SLICES
from nodetopo.tools.cluster.cleanup import ClusterObjects, cluster_nodes, cluster_objects
from nodetopo.tools.cluster.kinds import ObjectKind
from nodetopo.tools.cluster.node import ClusterNode


class ClusterApi:
    """The API server that *kubeconfig* names; every method raises :class:`ApiUnavailable`."""

    def __init__(self, kubeconfig: Path | None) -> None:
        self.connect = connection(kubeconfig)

    def nodes(self, selector: str) -> tuple[ClusterNode, ...]:
        """Return the Nodes that *selector* chooses."""
        with progress("listing the Nodes"):
            return tuple(cluster_nodes(self.connect, selector))

    def objects(self, kinds: Iterable[ObjectKind]) -> ClusterObjects:
        """Return the objects of *kinds*, and which of them could not be listed."""
        return cluster_objects(self.connect, kinds)

    def listed(self, path: str) -> tuple[Object, ...]:
        """Return the objects at *path*, a resource of DRA or ``/api/v1/nodes``."""
        try:
            with progress(f"listing the {path.rpartition('/')[2]}"):
                return tuple(list_objects(self.connect, path))
        except NotServed as error:
            raise ApiUnavailable(error.cause, "Kubernetes 1.34 or later serves them") from None

    def slices(self) -> tuple[Object, ...]:
        """Return the ResourceSlices; none before Kubernetes 1.34, which serves them first."""
        try:
            with progress("listing ResourceSlices"):
                return tuple(list_objects(self.connect, SLICES))
        except NotServed:
            return ()

    def serves(self, version: str, plural: str) -> bool | None:
        """Return whether the resource *plural* is served in *version*; ``None`` if unknown."""
        return serves(self.connect, version, plural)

    def version(self) -> Mapping[str, Any]:
        """Return what ``/version`` answers."""
        body: Mapping[str, Any] = self.connect().get("/version", {}).body
        return body
