"""The documentation page of the rules, generated from the catalogue."""

from collections.abc import Iterator

from agent.checks.catalogue import RULES
from agent.checks.rule import Area, Claim

_HEAD = """\
# Checks

Generated from `agent/checks/catalogue.py`; `nodetopo explain CODE` prints the same text.

`nodetopo health` checks hardware, `nodetopo audit` checks settings and pods. A claim whose
inputs could not be read is *unknown*, never passed. Findings of severity error fail a check,
those of severity warning warn (and fail the command with `--strict`), those of severity info
are remarks. Exit status: 0 nothing failed, 1 a check failed, 2 bad usage or input, 3 nothing
failed but something is unknown.
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
        f"What to do: {rule.remedy}.\n\n"
        f"Reference: <{rule.reference}>\n"
    )


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
