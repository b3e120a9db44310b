"""Helm values by which Topograph takes NVLink domains from labels instead of asking each node."""

from agent.cluster.export.objects import Family, always, narrowest
from agent.cluster.export.record import Exported, ExportOptions, hint
from agent.cluster.levels import CLIQUE, Choice, nvlink_keys
from agent.errors import InputError

_PROVIDER = "provider"

_OWN_NODE = "node-"
"""How the value begins where NVLink ends at the node (label nvlink-partition)."""


def _values(choice: Choice, options: ExportOptions) -> Exported:
    """Return values of its chart (Topograph v1.0.0 charts/topograph/values.yaml)."""
    key = _source(choice, options)
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


def _source(choice: Choice, options: ExportOptions) -> str:
    """Return the label of NVLink domains across nodes; Topograph can do with nodes that lack it.

    Not one that also stands for single machines: Topograph would make blocks of one node, and
    derive the size of all blocks from the smallest (its docs/engines/slurm.md).
    """
    if options.levels:
        return narrowest(choice)
    own = nvlink_keys(options.prefix)[1]
    values = [node.labels.get(own, _OWN_NODE) for node in choice.gpus]
    if not any(value.startswith(_OWN_NODE) for value in values):
        return own
    if any(CLIQUE in node.labels for node in choice.gpus):
        return CLIQUE
    cure = "Topograph needs none then; or name a label with --levels"
    raise InputError("no label tells of NVLink between nodes", cure)


TOPOGRAPH = Family(name="topograph", build=_values, merges=always)
