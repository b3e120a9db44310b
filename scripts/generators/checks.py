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

This page is generated from `agent/nodetopo/components/audit/catalogue.py`;
`nodetopo explain CODE` prints the same text. The
[runbook of checks](../operate/runbook-checks.md) lists the fix for each check.

`nodetopo health` checks hardware, and `nodetopo audit` checks settings and pods. A check without
its inputs is *unknown*, never passed. A finding of severity error fails its check, a finding of
severity warning warns (and fails the command with `--strict`), and a finding of severity info is
a remark. A check about parts that the node lacks, such as RDMA devices, *does not apply* and
counts neither way. Exit status: 0 nothing failed, 1 a check failed, 2 bad usage or input, 3
nothing failed but something is unknown.

The table lists failures first, then warnings and unknown checks, and counts the rest; `--all` lists
every check.

Each check lists its inputs, and is unknown without one of them. Some inputs need a component of the
DaemonSet ([install.md](../operate/install.md#components)): `configz` for the settings in force and
metrics of the kubelet, `host-audit` for the container runtime, toolkit, CDI, swap and interrupts,
`host-devices` for device nodes.

`--only` takes areas (the first column of the output) and codes.

## Severities and waivers

`--checks-file FILE`, or the variable `NODETOPO_CHECKS_FILE`, names a file that changes the
severities of `health` and `audit`, and accepts findings for a limited time. The daemon reads the
file again when it changes:

```yaml
severities:
  KUB-004: info          # error, warning or info
waivers:
  - code: PCI-001
    subject: "GPU3*"     # shell pattern for subjects of findings (default: all, unknown included)
    reason: riser ordered, ticket 4711
    until: 2027-01-31    # the last day
```

A waived verdict is unchanged but counted separately; it fails no command. After its last day a
waiver expires, and the report says so next to the verdict. A waiver for some findings leaves the
others.

## In the daemon

The daemon runs `health` when the node or the file changes, and `audit` every ten minutes
(`audit-node`, on by default). It uses only data from its node, not from the API server or the
kubelet's metrics, so some checks are unknown there, such as checks of requests and limits. The
metric `nodetopo_checks{report,verdict}` counts verdicts, with `skipped` for checks that do not
apply, and `nodetopo_check_broken{report,code,verdict}` is 1 for each check that fails or warns
without a waiver. The log has a line, `node audited`, when the findings of `audit` change.
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
    table = ["| Code | Check | Command | Severity |", "| --- | --- | --- | --- |", *index]
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

`nodetopo doctor` reads the labels of a cluster's Nodes as schedulers read them, and reports
problems that keep workloads from GPUs. It finds nodes that drop out of a topology, places with
the same name, labels with two writers, labels that contradict NVML, and gangs that fit nowhere.
It runs wherever `kubectl` runs, needs no GPU, and writes nothing.

```
nodetopo doctor                                    the cluster of kubectl
nodetopo doctor --selector pool=gb200 --levels topology.kubernetes.io/zone,nvidia.com/gpu.clique
nodetopo doctor --group 18@nvidia.com/gpu.clique   would 18 nodes fit into one clique?
nodetopo doctor --group 64x1@gpu.topology/tier-0   would 64 pods of one GPU fit below one leaf?
kubectl get nodes --show-managed-fields -o json | nodetopo doctor --nodes -
kubectl get topologies.kai.scheduler,podgroups.scheduling.run.ai -A -o json > asked.json
nodetopo doctor --nodes nodes.json --objects asked.json
nodetopo doctor --node-snapshot gpu-17.json        compare the labels of gpu-17 with its NVML
nodetopo doctor --live --only nvlink               the same for this node
nodetopo doctor --cluster nvl72-two-racks          a simulated cluster with two faults
```

**Nodes.** The doctor checks the Nodes whose labels show GPUs, and counts the others, which
include GPU nodes without labels. `--selector` chooses Nodes instead, with or without labels.
Levels come from `--levels`, otherwise from the KAI and Kueue Topologies in the cluster, otherwise
from the labels (as in `nodetopo export`); machines without NVLink by design are then a separate
pool. With several Topologies, a node needs all levels of one.

**Gangs** are read from the installed kinds: KAI and Volcano PodGroups, PodGroups of
`scheduling.k8s.io`, Kueue Workloads, and LeaderWorkerSets with exclusive topology. Only required
(hard) levels count. The number of GPUs of a pod is known for Workloads, LeaderWorkerSets and
Volcano Jobs of one task. For other kinds, a gang with more pods than the largest place has nodes
is *unknown*. A gang is also unknown if its level is a scheduler's name for a level (an alias of
KAI, a tier of Volcano) that no object explains. Running workloads do not count: a gang that
passes fits into the empty place. The doctor ignores devices by claim (DRA), CPUs and memory.

**Missing input** makes a check *unknown*, never passed. A file without `--show-managed-fields`
has no field managers, `--nodes FILE` asks no API server for gangs, and an `--objects` file with
only Topologies has no gangs. Exit status: 0 nothing failed, 1 a check failed (warnings too with
`--strict`), 2 bad usage or input, 3 nothing failed but something is unknown or unreadable. The
shape of `-o json` is [schema/doctor.json](schema/doctor.json).

**Cost.** One list of the Nodes' metadata and one list of each installed kind, 500 objects per
answer, nothing on a timer. It needs `list` on `nodes` and on the kinds; CLU-009 is unknown if an
installed kind cannot be listed. The agent's account has none of these rights. Files can have 256
MiB as JSON and 16 MiB as YAML.

This page is generated from `agent/nodetopo/tools/cluster/doctor`; `nodetopo explain CODE` prints
a section.

| Code | Check | Subject | Severity |
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
