"""KAI's Topology, and systems built on KAI: Run:ai's network topology and Grove's binding."""

import re

from nodetopo.components.labels.levels import REGION, ZONE
from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.objects import Family, group_key
from nodetopo.tools.cluster.export.record import Exported, ExportOptions, hint
from nodetopo.tools.cluster.levels import CLIQUE, HOSTNAME, Choice

_GROVE_KEY = 63
"""Characters of a level's key, prefix included (Grove v0.1.0-alpha.12-rc1
operator/api/core/v1alpha1/clustertopologybinding.go)."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Of a cluster in Run:ai (its REST reference, v3.0, Create network topologies)."""

_DOMAINS = {
    REGION: "region",
    ZONE: "zone",
    "tier-0": "block",
    "nvlink-domain": "rack",
    "nvlink-partition": "nvlink-partition",
    CLIQUE: "nvlink-partition",
    HOSTNAME: "host",
}
"""Grove's portable names of levels, by key or by its last part; an NVL72 rack is one domain."""


def _topology(choice: Choice, options: ExportOptions) -> Exported:
    # The version that KAI serves since 0.12 (deployments/kai-scheduler/crds); its docs of 0.12
    # name another.
    return Exported(
        objects=(
            {
                "apiVersion": "kai.scheduler/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": options.name},
                "spec": {"levels": [{"nodeLabel": key} for key in choice.keys]},
            },
        ),
        remarks=(
            hint(
                f"annotate workloads: kai.scheduler/topology: {options.name}, "
                f"kai.scheduler/topology-required-placement: {group_key(choice)}"
            ),
        )
        if choice.broad
        else (),
    )


def _network_topology(choice: Choice, options: ExportOptions) -> Exported:
    cluster = options.cluster_id or ""
    if _UUID.fullmatch(cluster) is None:
        cure = "give --cluster-id: the UUID that Run:ai shows for the cluster"
        raise InputError(f"Run:ai does not know the cluster by {cluster!r}", cure)
    return Exported(
        document={
            "name": options.name,
            "clusterId": cluster,
            "levels": list(choice.keys),
        },
        remarks=(hint("send it to POST /api/v1/network-topologies, then give it to a node pool"),),
    )


def _binding(choice: Choice, options: ExportOptions) -> Exported:
    # A name for each level, no two alike, as Grove's webhook demands, spelled [a-z][a-z0-9-]*.
    domains: dict[str, str] = {}
    for number, key in enumerate(choice.keys):
        name = key.rpartition("/")[2]
        spelled = name.lower().replace(".", "-").replace("_", "-")
        domain = _DOMAINS.get(key) or _DOMAINS.get(name) or spelled
        is_usable = domain not in domains and domain[:1].isalpha()
        domains[domain if is_usable else f"level-{number}"] = key
    levels = [{"domain": domain, "key": key} for domain, key in domains.items()]
    return Exported(
        objects=(
            {
                "apiVersion": "grove.io/v1alpha1",
                "kind": "ClusterTopologyBinding",
                "metadata": {"name": options.name},
                "spec": {"levels": levels},
            },
        ),
        remarks=(
            hint(
                f"in a PodCliqueSet: topologyConstraint: topologyName: {options.name}, "
                f"pack: required: one of {', '.join(level['domain'] for level in levels)}"
            ),
        ),
    )


KAI = Family(name="kai", build=_topology, joins_by_dots=True)
RUNAI = Family(name="runai", build=_network_topology, joins_by_dots=True)
GROVE = Family(name="grove", build=_binding, joins_by_dots=True, max_key=_GROVE_KEY)
