"""The documentation page of the rules, generated from the catalogue."""

from collections.abc import Iterator

from agent.checks.catalogue import RULES
from agent.checks.needs import needed
from agent.checks.rule import Area, Claim, Rule

_HEAD = """\
# Checks

Generated from `agent/checks/catalogue.py`; `nodetopo explain CODE` prints the same text.

`nodetopo health` checks hardware, `nodetopo audit` checks settings and pods. A claim whose
inputs could not be read is *unknown*, never passed. Findings of severity error fail a check,
those of severity warning warn (and fail the command with `--strict`), those of severity info
are remarks. A claim that says nothing about a node, such as one on RDMA where there is no RDMA
device, *does not apply* and counts neither way. Exit status: 0 nothing failed, 1 a check failed,
2 bad usage or input, 3 nothing failed but something is unknown.

What a rule needs stands with it; without one of these it is unknown. Some of it is in reach only
with a component of the DaemonSet ([operations.md](operations.md#install)): `configz` for the
settings in force and metrics of the kubelet, `host-audit` for the container runtime, toolkit, CDI,
swap and interrupts, `host-devices` for device nodes.

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
[operations.md](operations.md#alerts) has an alert.

## All checks
"""


def page() -> str:
    """Return the whole page as Markdown: an index, then a section for each rule."""
    sections = [_HEAD, _index(), *(section(rule) for rule in RULES)]
    return "\n".join(sections)


def section(rule: Claim) -> str:
    """Return the section of *rule*; its heading is the code, so that its URL is stable."""
    return (
        f"## {rule.code}\n\n"
        f"**{rule.claim}** · `{rule.command}` · {rule.area} · {rule.severity}\n\n"
        f"{rule.why}\n\n"
        f"{_needs(rule)}"
        f"What to do: {rule.remedy}.\n\n"
        f"Reference: <{rule.reference}>\n"
    )


def _needs(rule: Claim) -> str:
    return f"Needs: {', '.join(needed(rule))}.\n\n" if isinstance(rule, Rule) else ""


def _index() -> str:
    return "".join(f"{line}\n" for line in _index_lines())


def _index_lines() -> Iterator[str]:
    yield "| Code | Claim | Command | Severity |"
    yield "| --- | --- | --- | --- |"
    for area in Area:
        for rule in RULES:
            if rule.area is area:
                link = f"[{rule.code}](#{rule.code.lower()})"
                yield f"| {link} | {rule.claim} | `{rule.suite}` | {rule.severity} |"
