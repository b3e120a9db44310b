"""The runbook's page of checks: for each one what it means, how to confirm it, and what to do."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from nodetopo.checks.rule import Claim, Rule, Severity, needed
from nodetopo.tools.cluster.doctor.catalogue import RULES as DOCTOR_RULES
from nodetopo.tools.node_rules import node_rules

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "runbook-checks.md"

_HEAD = """\
# Runbook: checks

What to do when a check of `health`, `audit` or `doctor` fails, by its code.

This page is generated from the catalogues of rules. `nodetopo explain CODE` prints
the facts of one check, [checks.md](../reference/checks.md) and
[doctor.md](../reference/doctor.md) list them with their references, and
[runbook.md](runbook.md) has readiness, Events and conflicts.

## How to use an entry

1. **Find the code** in the output of the command, in the log (`node audited`) or in
   `nodetopo_check_broken{report,code,verdict}`, which is 1 for each check that fails or warns.
2. **Confirm it** with the command of the entry on the node, or from a workstation with
   `kubectl nodetopo NODE` in front. The finding names the device or setting, and its observed and
   expected value.
3. **Fix it**, then run the command again until the check passes. The daemon runs `health` when the
   node changes, and `audit` every ten minutes.
4. **Or accept it** for a limited time, with a reason and a last day:
   [waivers](../reference/checks.md#severities-and-waivers).

A check with an unreadable input is *unknown*. The report names each missing input once, with the
reason and the checks that need it; the entries below list the inputs of each check. To share a
finding, attach the archive of [`nodetopo support`](support.md).

Severities: *error* fails the command (exit status 1), *warning* fails it with `--strict`, and
*info* is a remark.

"""


_CONSEQUENCES: Mapping[Severity, str] = MappingProxyType(
    {
        Severity.ERROR: "error: a finding fails the command",
        Severity.WARNING: "warning: a finding fails the command with `--strict`",
        Severity.INFO: "info: a finding is a remark",
    },
)


def page() -> str:
    """Return the whole page as Markdown: an index, then an entry for each check."""
    claims: tuple[Claim, ...] = (*node_rules(), *DOCTOR_RULES)
    index = ["| Code | Check | Severity | Command |", "| --- | --- | --- | --- |"]
    index += [
        f"| [{claim.code}](#{claim.code.lower()}) | {claim.claim} | {claim.severity} "
        f"| `{claim.command}` |"
        for claim in claims
    ]
    entries = "\n".join("\n".join(entry(claim)) + "\n" for claim in claims)
    return _HEAD + "\n".join(index) + "\n\n" + entries


def entry(claim: Claim) -> Iterator[str]:
    """Yield the lines of the entry of *claim*; its heading is the code."""
    yield f"## {claim.code}"
    yield ""
    yield f"**{claim.claim}** · {_CONSEQUENCES[claim.severity]}"
    yield ""
    yield f"- **Meaning**: {claim.why}"
    yield f"- **Confirm**: `nodetopo {claim.command} --only {claim.code}`"
    if isinstance(claim, Rule) and (inputs := needed(claim)):
        yield f"- **Unknown without**: {', '.join(inputs)}."
    yield f"- **Fix**: {claim.remedy}."
    yield f"- **More**: `nodetopo explain {claim.code}`, <{claim.reference}>"


def made() -> Mapping[Path, str]:
    """Return the page."""
    return {PAGE: page()}


def owned() -> Iterable[Path]:
    """Return the file of this generator."""
    return (PAGE,)
