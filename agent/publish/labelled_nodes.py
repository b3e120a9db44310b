"""Which Nodes of the cluster have labels of ours; for a person's command only."""

from collections.abc import Iterator

from agent.publish.applied import FIELD_MANAGER, Connect
from agent.publish.cluster_nodes import NODES
from agent.publish.owned import labelled
from agent.publish.pages import pages_of_metadata


def nodes_with_labels(connect: Connect) -> Iterator[str]:
    """Yield the name of every Node that has a label of ours, a page of Nodes at a time.

    Expensive for the API server of a large cluster, so for a person's command only: 5,000 Nodes
    are an answer of some 30 MB, and the daemon has no right to list.

    Raises:
        ApiUnavailable: they cannot be listed.
    """
    for metadata in pages_of_metadata(connect, NODES, {}):
        if labelled(metadata, FIELD_MANAGER).owned:
            yield str(metadata.get("name"))
