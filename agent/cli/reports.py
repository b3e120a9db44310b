"""What `health` and `audit` share: choose rules, run them, print, tell by the exit status."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from agent.checks.catalogue import select
from agent.checks.engine import evaluate
from agent.checks.rule import Rule
from agent.checks.waivers import USUAL, Terms
from agent.cli import render, report
from agent.cli.output import Answer, emit
from agent.cli.source import settings
from agent.errors import InputError
from agent.model.snapshot import Snapshot


def selected(rules: Sequence[Rule], only: Sequence[str], command: str) -> Sequence[Rule]:
    """Return those of *rules* that ``--only`` names; all of them when it was not given.

    Raises:
        InputError: a name is unknown, or none of this command's rules has it.
    """
    names = [name for argument in only for name in argument.split(",")]
    if not names:
        return rules
    found = select(rules, names)
    if not found:
        areas = ", ".join(dict.fromkeys(rule.area.value for rule in rules))
        raise InputError(f"`{command}` checks nothing about {', '.join(names)}", f"try: {areas}")
    return found


def _as_it_is(answer: Answer) -> Answer:
    return answer


def judge(
    snapshot: Snapshot,
    rules: Sequence[Rule],
    args: Namespace,
    add: Callable[[Answer], Answer] = _as_it_is,
) -> int:
    """Print the report of *rules* on *snapshot* and return the exit status.

    *add* puts into the answer what the command has to say beside the rules.
    """
    result = evaluate(snapshot, rules, _terms(args))
    emit(add(report.answer(result, render.style(no_color=args.no_color))), args)
    code = report.exit_code(result, strict=args.strict)
    return 3 if code == 0 and args.incomplete else code


def _terms(args: Namespace) -> Terms:
    path = settings(args).checks_file
    if path is None:
        return USUAL
    from agent.config.checks_file import load  # noqa: PLC0415 - loads yaml

    return load(path, datetime.now(UTC).date())
