"""The Nodes of the cluster, for a person's command only.

Their metadata is some 7 KB each, 30 MB for 5,000, a third of what whole objects take. The daemon
never asks, and has no right to list.
"""

from collections.abc import Iterator

from agent.cluster.node import ClusterNode
from agent.cluster.node_metadata import cluster_node
from agent.errors import ApiUnavailable, DecodeError
from agent.kubeapi.apply import Connect
from agent.kubeapi.lists import pages_of_metadata

NODES = "/api/v1/nodes"


def cluster_nodes(connect: Connect, selector: str = "") -> Iterator[ClusterNode]:
    """Yield every Node, or those that *selector* (a ``labelSelector``) asks for.

    Metadata only, 500 Nodes an answer, in the order of the API server.

    Raises:
        ApiUnavailable: they cannot be listed, or what came are no Nodes.
    """
    query = {"labelSelector": selector} if selector else {}
    for metadata in pages_of_metadata(connect, NODES, query):
        try:
            yield cluster_node(metadata)
        except DecodeError as error:
            name = metadata.get("name")
            raise ApiUnavailable(f"GET {connect().host}{NODES}: {name}: {error}") from None
