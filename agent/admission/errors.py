"""That there is no verdict."""

MOST_NODES = 10
"""NUMA nodes that are worked out: combinations double with each. The kubelet's own limit is 8."""


class Missing(Exception):  # noqa: N818 - an outcome, caught where the pods are admitted
    """Something is not known that the verdict depends on; carries what, in *args*."""


def check_nodes(count: int) -> None:
    """Raise Missing where something has more NUMA nodes than are worked out."""
    if count > MOST_NODES:
        raise Missing(f"an answer for more than {MOST_NODES} NUMA nodes, which is not worked out")
