"""``nodetopo explain CODE``: what a check means and what to do about it."""

from argparse import Namespace

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
    from agent.checks.catalogue import rule  # noqa: PLC0415 - keeps the other commands fast

    found = rule(args.code)
    plain = {
        "id": found.code,
        "claim": found.claim,
        "area": found.area.value,
        "command": found.suite.value,
        "severity": found.severity.value,
        "why": found.why,
        "remedy": found.remedy,
        "reference": found.reference,
        "url": found.url,
    }
    title = f"{found.code}: {found.claim}"
    facts = render.table(
        [
            ("checked by", f"nodetopo {found.suite} --only {found.area}"),
            ("severity", found.severity.value),
            ("why", found.why),
            ("what to do", found.remedy),
            ("reference", found.reference),
        ],
    )
    emit(Answer(plain=plain, table=f"{title}\n\n{facts}", short=f"{found.remedy}\n"), args)
    return 0
