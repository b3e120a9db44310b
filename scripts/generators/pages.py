"""The copies in ``docs/`` of the pages in the package, with the facts of checks that are code."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodetopo.checks.rule import Claim, Rule, needed
from nodetopo.pages import DIRECTORY
from nodetopo.tools.cluster.doctor.catalogue import RULES as DOCTOR_RULES
from nodetopo.tools.node_rules import node_rules

DOCS = Path(__file__).parents[2] / "docs"

_NOTE = "<!-- A copy of agent/nodetopo/pages: write there, then run scripts/generate pages. -->\n\n"

_HEADING = "\n## "


def made() -> Mapping[Path, str]:
    """Return the copies."""
    return {_place(page): _NOTE + _copy(page.read_text("utf-8")) for page in _pages()}


def owned() -> Iterable[Path]:
    """Return the copies of this generator."""
    return map(_place, _pages())


def _pages() -> Iterator[Path]:
    yield from sorted(DIRECTORY.rglob("*.md"))


def _place(page: Path) -> Path:
    return DOCS / page.relative_to(DIRECTORY)


def _copy(text: str) -> str:
    """Return *text* with a table of its checks before the first one, and the facts of each."""
    all_claims: tuple[Claim, ...] = (*node_rules(), *DOCTOR_RULES)
    claims = {claim.code: claim for claim in all_claims}
    parts = {part.partition("\n")[0]: part for part in text.split(_HEADING)}
    listed = [claims[title] for title in parts if title in claims]
    copied = [_with_facts(part, claims.get(title)) for title, part in parts.items()]
    if listed:
        before = len(parts) - len(listed)
        copied[before - 1] += f"\n{_table(listed)}"
    return _HEADING.join(copied)


def _table(claims: Iterable[Claim]) -> str:
    rows = (
        f"| [{claim.code}](#{claim.code.lower()}) | {claim.claim} | {claim.area} "
        f"| `{claim.command}` | {claim.severity} |\n"
        for claim in claims
    )
    head = "| Code | Check | Subject | Command | Severity |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(rows)


def _with_facts(part: str, claim: Claim | None) -> str:
    if claim is None:
        return part
    command = f"`nodetopo {claim.command} --only {claim.code}`"
    part = part.replace("**\n", f"** · {command} · {claim.area} · {claim.severity}\n", 1)
    needs = ", ".join(needed(claim)) if isinstance(claim, Rule) else ""
    return (
        part.replace("\nWhat to do: ", f"\nNeeds: {needs}.\n\nWhat to do: ", 1) if needs else part
    )
