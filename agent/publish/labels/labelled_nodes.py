"""Which Nodes of the cluster have labels of ours; for a person's command only."""

from collections.abc import Iterator

from agent.kubeapi.apply import FIELD_MANAGER, Connect
from agent.kubeapi.lists import pages_of_metadata
from agent.kubeapi.owned import labelled
from agent.publish.labels.cluster_nodes import NODES


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
