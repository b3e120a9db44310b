"""Which nodes are meant to be without NVLink, as far as labels tell."""

from collections.abc import Iterable

from agent.cluster.levels import nvlink_keys
from agent.cluster.node import ClusterNode
from agent.topology.domains import Interconnect

_NONE = {Interconnect.PCIE.value, Interconnect.NONE.value}
_PRODUCT = "nvidia.com/gpu.product"


def without_nvlink(nodes: Iterable[ClusterNode], prefix: str) -> frozenset[str]:
    """Return the names of *nodes* whose own label says that NVLink joins no GPUs there.

    So it is with GPUs that are joined by PCIe, with a single GPU, and with GPUs that are all in
    MIG mode, which closes their links. A node that says so although another of the same GPUs has
    NVLink, and not for MIG, has lost it, and is none of these. *prefix* is that of our labels.
    """
    known = tuple(nodes)
    joined = {node.labels.get(_PRODUCT) for node in known if _has_nvlink(node, prefix)} - {None}
    return frozenset(
        node.name
        for node in known
        if node.labels.get(f"{prefix}interconnect") in _NONE
        and not _has_nvlink(node, prefix)
        and (
            node.labels.get(f"{prefix}mig-enabled") == "true"
            or node.labels.get(_PRODUCT) not in joined
        )
    )


def _has_nvlink(node: ClusterNode, prefix: str) -> bool:
    return any(key in node.labels for key in nvlink_keys(prefix))
