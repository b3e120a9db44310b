"""The documentation page of the doctor, generated from its rules."""

from collections.abc import Iterator

from agent.cluster.doctor.catalogue import RULES
from scripts.docs.checks import section

_HEAD = """\
# Doctor

`nodetopo doctor` reads the labels of a cluster's Nodes as schedulers read them, and names what
keeps workloads from GPUs: nodes that drop out of a topology, places that are taken for one
another, labels with two writers, labels that NVML contradicts, gangs that fit nowhere. It runs
on any machine that `kubectl` runs on, needs no GPU, and writes nothing.

```
nodetopo doctor                                    the cluster that kubectl would ask
nodetopo doctor --selector pool=gb200 --levels topology.kubernetes.io/zone,nvidia.com/gpu.clique
nodetopo doctor --group 18@nvidia.com/gpu.clique   would 18 nodes fit into one clique?
nodetopo doctor --group 64x1@gpu.topology/tier-0   would 64 pods of one GPU fit below one leaf?
kubectl get nodes --show-managed-fields -o json | nodetopo doctor --nodes -
kubectl get topologies.kai.scheduler,podgroups.scheduling.run.ai -A -o json > asked.json
nodetopo doctor --nodes nodes.json --objects asked.json
nodetopo doctor --node-snapshot gpu-17.json        hold the labels of gpu-17 against its NVML
nodetopo doctor --live --only nvlink               the same for the node it runs on
```

**What it judges.** The Nodes whose labels tell of GPUs, and how many others there are: a GPU
node that nobody has labelled yet is among these. With `--selector` all that it chooses, which
finds such nodes. Levels are those of `--levels`, else of the KAI and Kueue Topologies in the
cluster, else those that the labels offer (as for `nodetopo export`); machines that are meant to
have no NVLink are then a pool of their own. Of several Topologies a node needs all levels of one.

**Gangs** are read where their kinds are installed: KAI and Volcano PodGroups, PodGroups of
`scheduling.k8s.io`, Kueue Workloads, LeaderWorkerSets with exclusive topology. Only required
(hard) levels count. The GPUs of a pod are known for Workloads, LeaderWorkerSets and Volcano Jobs
of one task; for the others a gang with more pods than the largest place has nodes is *unknown*,
and so is one whose level is a scheduler's own name (an alias of KAI's, a tier of Volcano's) that
nothing read explains. What already runs is not counted: a gang that passes fits when the place
is empty. Devices by claim (DRA), CPUs and memory are not looked at.

**Input that is missing** makes a claim *unknown*, never passed: field managers are not in a file
without `--show-managed-fields`, and `--nodes FILE` asks no API server for gangs, nor does an
`--objects` file tell of them that has Topologies only. Exit status: 0
nothing failed, 1 a check failed (warnings too with `--strict`), 2 bad usage or input, 3 nothing
failed but something is unknown or unreadable. `-o json` has the shape of
[schema/doctor.json](schema/doctor.json).

**What it costs.** One list of the Nodes' metadata and one of each installed kind, 500 objects an
answer, nothing on a timer. It needs `list` on `nodes`, and on those kinds; an installed kind that
may not be listed makes CLU-009 unknown. The agent's own account has none of these rights. Files
may have 256 MiB as JSON and 16 MiB as YAML.

This page is generated from `agent/cluster/doctor`; `nodetopo explain CODE` prints a section.

| Code | Claim | Subject | Severity |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the whole page as Markdown: an index, then a section for each rule."""
    return _HEAD + "".join(_index()) + "".join(f"\n{section(rule)}" for rule in RULES)


def _index() -> Iterator[str]:
    for rule in RULES:
        link = f"[{rule.code}](#{rule.code.lower()})"
        yield f"| {link} | {rule.claim} | {rule.area} | {rule.severity} |\n"
