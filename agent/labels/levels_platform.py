"""The node labels by which clouds and operators tell where a node stands in their network.

As data, because every platform has names of its own and no standard is coming
(kubernetes/enhancements 4962 was closed). A tier is a level of the network above the node;
tier 0 is the nearest, as with Topograph.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from agent.errors import InputError

MAX_TIERS = 8
"""KAI and Kueue take 16 levels, of which region, zone, NVLink and the host need some."""

REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
"""Well-known labels of Kubernetes, which every cloud sets; broader than any tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One way of labelling nodes.

    Attributes:
        name: what a person asks for.
        keys: label keys, that of tier 0 first.
        origin: who writes them, for the reference page.
    """

    name: str
    keys: tuple[str, ...]
    origin: str


PLATFORMS: tuple[Platform, ...] = (
    Platform(
        name="topograph",
        keys=tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(MAX_TIERS)),
        origin="Topograph 1.0",
    ),
    Platform(
        name="topograph-0.5",
        keys=(
            "network.topology.nvidia.com/leaf",
            "network.topology.nvidia.com/spine",
            "network.topology.nvidia.com/core",
        ),
        origin="Topograph up to 0.5",
    ),
    Platform(
        name="topograph-0.1",
        keys=(
            "network.topology.nvidia.com/block",
            "network.topology.nvidia.com/spine",
            "network.topology.nvidia.com/datacenter",
        ),
        origin="Topograph 0.1",
    ),
    Platform(
        name="aws-4",
        keys=tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (4, 3, 2, 1)),
        origin="Amazon EKS, instance types of four layers",
    ),
    Platform(
        name="aws",
        keys=tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1)),
        origin="Amazon EKS",
    ),
    Platform(
        name="gke",
        keys=("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
        origin="Google GKE",
    ),
    Platform(
        name="oci",
        keys=(
            "oci.oraclecloud.com/rdma.local_block_id",
            "oci.oraclecloud.com/rdma.network_block_id",
            "oci.oraclecloud.com/rdma.hpc_island_id",
        ),
        origin="Oracle OKE",
    ),
    Platform(
        name="oci-host",
        keys=("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
        origin="Oracle OKE, older images",
    ),
    Platform(
        name="coreweave",
        keys=tuple(
            f"backend.coreweave.cloud/{level}" for level in ("leafgroup", "superpod", "fabric")
        ),
        origin="CoreWeave CKS",
    ),
    Platform(
        name="coreweave-ib",
        keys=tuple(f"ib.coreweave.cloud/{level}" for level in ("leafgroup", "superpod", "fabric")),
        origin="CoreWeave CKS, older clusters",
    ),
    Platform(
        name="crusoe",
        keys=("crusoe.ai/pod.id", "crusoe.ai/ib.partition.id"),
        origin="Crusoe Cloud",
    ),
)
"""In the order in which they are tried: what an operator installed comes before the cloud's own.

Sources: NVIDIA/topograph docs/reference/node-labels (1.0, 0.5) and docs/engines/k8s (0.1), its
Crusoe provider; EKS user guide "ml-workload-topology"; GKE guide "schedule-gke-workloads-tas";
oracle-quickstart/oci-hpc-oke; CoreWeave CKS documentation of node labels.
"""


def platform(name: str) -> Platform:
    """Return the platform called *name*.

    Raises:
        InputError: there is none.
    """
    by_name = {platform.name: platform for platform in PLATFORMS}
    if name in by_name:
        return by_name[name]
    close = get_close_matches(name, by_name, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InputError(f"unknown platform {name!r}", f"{hint}known are: {', '.join(by_name)}")
