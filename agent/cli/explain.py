"""``nodetopo explain CODE``: what a check means and what to do about it."""

from argparse import Namespace

from agent.checks.rule import Claim
from agent.cli import render
from agent.cli.output import Answer, emit
from agent.cli.parser import Subparsers, add_command, add_output


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "explain", "explain a check by its code")
    parser.add_argument("code", metavar="CODE", help="e.g. NVL-001")
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the page of one check; 0.

    Raises:
        InputError: there is no such check.
    """
    # Keeps the other commands fast.
    from agent.checks.catalogue import RULES, by_code  # noqa: PLC0415
    from agent.cluster.doctor import RULES as OF_CLUSTERS  # noqa: PLC0415

    found: Claim = by_code(args.code, (*RULES, *OF_CLUSTERS))
    plain = {
        "id": found.code,
        "claim": found.claim,
        "area": found.area.value,
        "command": found.command,
        "severity": found.severity.value,
        "why": found.why,
        "remedy": found.remedy,
        "reference": found.reference,
        "url": found.url,
    }
    title = f"{found.code}: {found.claim}"
    facts = render.table(
        [
            ("checked by", f"nodetopo {found.command} --only {found.area}"),
            ("severity", found.severity.value),
            ("why", found.why),
            ("what to do", found.remedy),
            ("reference", found.reference),
        ],
    )
    emit(Answer(plain=plain, table=f"{title}\n\n{facts}", short=f"{found.remedy}\n"), args)
    return 0
