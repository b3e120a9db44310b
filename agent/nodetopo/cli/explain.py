"""``nodetopo explain CODE``: the meaning of a check and its remedy."""

from argparse import Namespace
from typing import Any

from nodetopo.checks.rule import Claim, Rule, by_code, needed
from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit
from nodetopo.tools.cluster.doctor.catalogue import RULES as OF_CLUSTERS
from nodetopo.tools.node_rules import node_rules


def run(args: Namespace) -> int:
    """Print the page of one check, or the list of all; 0.

    Raises:
        InputError: there is no such check.
    """
    claims: tuple[Claim, ...] = (*node_rules(), *OF_CLUSTERS)
    if args.code is not None:
        emit(_page(by_code(args.code, claims)), args)
        return 0
    rows = [(claim.code, claim.command, claim.severity.value, claim.claim) for claim in claims]
    every = Answer(
        plain=[_plain(claim) for claim in claims],
        table=output.table([("CODE", "COMMAND", "SEVERITY", "CLAIM"), *rows]),
        short="".join(f"{claim.code} {claim.claim}\n" for claim in claims),
    )
    emit(every, args)
    return 0


def _needs(found: Claim) -> tuple[str, ...]:
    return needed(found) if isinstance(found, Rule) else ()


def _plain(found: Claim) -> dict[str, Any]:
    return {
        "id": found.code,
        "claim": found.claim,
        "area": found.area.value,
        "command": found.command,
        "severity": found.severity.value,
        "why": found.why,
        "needs": list(_needs(found)),
        "remedy": found.remedy,
        "reference": found.reference,
        "url": found.url,
    }


def _page(found: Claim) -> Answer:
    title = f"{found.code}: {found.claim}"
    needs = ", ".join(_needs(found))
    facts = output.table(
        [
            ("checked by", f"nodetopo {found.command} --only {found.area}"),
            ("severity", found.severity.value),
            ("why", found.why),
            *([("needs", needs)] if needs else []),
            ("what to do", found.remedy),
            ("reference", found.reference),
        ],
    )
    return Answer(plain=_plain(found), table=f"{title}\n\n{facts}", short=f"{found.remedy}\n")
