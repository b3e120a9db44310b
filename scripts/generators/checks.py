"""The documentation page of the rules, generated from the catalogue."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nodetopo.checks.rule import Area, Claim, Rule, needed
from nodetopo.tools.cluster.doctor.catalogue import RULES as DOCTOR_RULES
from nodetopo.tools.node_rules import node_rules

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = _REFERENCE / "checks.md"
DOCTOR_PAGE = _REFERENCE / "doctor.md"

_HEAD = """\
# Checks

Generated from `agent/nodetopo/components/audit/catalogue.py`; `nodetopo explain CODE` prints the
same text. [runbook-checks.md](../operate/runbook-checks.md) says what to do when one fails.

`nodetopo health` checks hardware, `nodetopo audit` checks settings and pods. A claim whose
inputs could not be read is *unknown*, never passed. Findings of severity error fail a check,
those of severity warning warn (and fail the command with `--strict`), those of severity info
are remarks. A claim that says nothing about a node, such as one on RDMA where there is no RDMA
device, *does not apply* and counts neither way. Exit status: 0 nothing failed, 1 a check failed,
2 bad usage or input, 3 nothing failed but something is unknown.

What a rule needs stands with it; without one of these it is unknown. Some of it is in reach only
with a component of the DaemonSet ([install.md](../operate/install.md#components)): `configz` for
the settings in force and metrics of the kubelet, `host-audit` for the container runtime, toolkit,
CDI, swap and interrupts, `host-devices` for device nodes.

`--only` takes areas (the first column of the output) and codes.

## Your own terms

`--checks-file FILE`, or the variable `NODETOPO_CHECKS_FILE`, names a file by which `health` and
`audit` change severities and accept verdicts for a while, on the command line and in the daemon,
which reads a changed file anew:

```yaml
severities:
  KUB-004: info          # error, warning or info
waivers:
  - code: PCI-001
    subject: "GPU3*"     # a shell pattern of findings' subjects; without it all, unknown included
    reason: riser ordered, ticket 4711
    until: 2027-01-31    # the last day
```

A waived verdict stays what it is and is counted apart; it fails no command. After its last day the
waiver holds no more, and the report says so beside the verdict. Waivers of some findings only leave
the others.

## In the daemon

`health` is judged whenever the node or the terms change, and `audit` every ten minutes
(`audit-node`, on by default), on what the agent reads on its node: neither the API server nor the
kubelet's metrics are asked, so rules on requests and limits of pods, among others, are unknown
there. Metrics: `nodetopo_checks{report,verdict}` counts verdicts, those that do not apply as
`skipped`; `nodetopo_check_broken{report,code,verdict}` is 1 for each check that fails or warns and
is not waived. What `audit` finds broken is a line in the log when it changes, `node audited`.
[alerts.md](../operate/alerts.md) has an alert.

## All checks
"""


def page() -> str:
    """Return the whole page as Markdown: an index, then a section for each rule."""
    index = [
        f"| [{rule.code}](#{rule.code.lower()}) | {rule.claim} | `{rule.suite}` | {rule.severity} |"
        for area in Area
        for rule in node_rules()
        if rule.area is area
    ]
    table = ["| Code | Claim | Command | Severity |", "| --- | --- | --- | --- |", *index]
    return "\n".join((_HEAD, *table, "", *map(section, node_rules())))


def section(rule: Claim) -> str:
    """Return the section of *rule*; its heading is the code, so that its URL is stable."""
    needs = f"Needs: {', '.join(needed(rule))}.\n\n" if isinstance(rule, Rule) else ""
    return (
        f"## {rule.code}\n\n"
        f"**{rule.claim}** · `{rule.command}` · {rule.area} · {rule.severity}\n\n"
        f"{rule.why}\n\n"
        f"{needs}"
        f"What to do: {rule.remedy}.\n\n"
        f"Reference: <{rule.reference}>\n"
    )


# The documentation page of the doctor, generated from its rules.

_DOCTOR_HEAD = """\
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
nodetopo doctor --cluster nvl72-two-racks          a simulated cluster with two faults
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

This page is generated from `agent/nodetopo/tools/cluster/doctor`; `nodetopo explain CODE` prints a
section.

| Code | Claim | Subject | Severity |
| --- | --- | --- | --- |
"""


def doctor_page() -> str:
    """Return the whole page as Markdown: an index, then a section for each rule."""
    index = [
        f"| [{rule.code}](#{rule.code.lower()}) | {rule.claim} | {rule.area} | {rule.severity} |\n"
        for rule in DOCTOR_RULES
    ]
    return "".join((_DOCTOR_HEAD, *index, *(f"\n{section(rule)}" for rule in DOCTOR_RULES)))


def made() -> Mapping[Path, str]:
    """Return both pages."""
    return {PAGE: page(), DOCTOR_PAGE: doctor_page()}


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (PAGE, DOCTOR_PAGE)
