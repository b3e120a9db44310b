"""Helm values that make Topograph read NVLink domains from labels instead of asking nodes."""

from nodetopo.errors import NothingFound
from nodetopo.tools.cluster.export.objects import Family, always, narrowest
from nodetopo.tools.cluster.export.record import Exported, ExportOptions, hint
from nodetopo.tools.cluster.levels import CLIQUE, Choice, nvlink_keys

_PROVIDER = "provider"

_OWN_NODE = "node-"
"""Prefix of the value where NVLink ends at the node (label nvlink-partition)."""


def _build(choice: Choice, options: ExportOptions) -> Exported:
    """Return values of its chart (Topograph v1.0.0 charts/topograph/values.yaml).

    The label must mark NVLink domains across nodes; nodes can lack it. A label that also marks
    single machines is unsuitable: Topograph would make blocks of one node, and derive the size of
    all blocks from the smallest (its docs/engines/slurm.md).
    """
    own = nvlink_keys(options.prefix)[1]
    values = [node.labels.get(own, _OWN_NODE) for node in choice.gpus]
    if options.levels:
        key = narrowest(choice)
    elif not any(value.startswith(_OWN_NODE) for value in values):
        key = own
    elif any(CLIQUE in node.labels for node in choice.gpus):
        key = CLIQUE
    else:
        cure = "Topograph needs none then; or name a label with --levels"
        raise NothingFound("no label tells of NVLink between nodes", cure)
    if options.form == _PROVIDER:
        accelerator = {"source": "kubernetes-label", "kubernetesLabel": {"key": key}}
        return Exported(
            document={"provider": {"params": {"accelerator": accelerator}}},
            remarks=(hint("for the providers infiniband-k8s and dra, beside provider.name"),),
        )
    return Exported(
        document={"engine": {"params": {"acceleratorDomainSourceLabel": key}}},
        remarks=(hint("for the engines k8s, nfd and slinky, beside engine.name"),),
    )


TOPOGRAPH = Family(name="topograph", build=_build, merges=always)
