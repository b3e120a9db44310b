"""Chooses the rules of a command, and judges a snapshot by them."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Area, Rule
from nodetopo.checks.waivers import NO_OVERRIDES, Overrides
from nodetopo.cli import output, reports
from nodetopo.cli.output import Answer, emit
from nodetopo.cli.source import is_configured, settings
from nodetopo.errors import InputError
from nodetopo.model.snapshot import Snapshot

_OF_PODS = (Area.QOS, Area.PODS)
"""The areas of rules about pods alone."""


def selected(rules: Sequence[Rule], only: Sequence[str], command: str) -> Sequence[Rule]:
    """Return the *rules* that ``--only`` names; all of them without it.

    Raises:
        InputError: a name is unknown, or none of this command's rules has it.
    """
    names = [name for argument in only for name in argument.split(",")]
    if not names:
        return rules
    from nodetopo.components.audit.catalogue import select  # noqa: PLC0415 - `doctor` lacks these

    chosen = select(rules, names)
    if not chosen:
        areas = ", ".join(dict.fromkeys(rule.area.value for rule in rules))
        raise InputError(f"`{command}` checks nothing about {', '.join(names)}", f"try: {areas}")
    return chosen


def judge(
    snapshot: Snapshot,
    rules: Sequence[Rule],
    args: Namespace,
    extend: Callable[[Answer], Answer] | None = None,
    *,
    without_pods: Snapshot | None = None,
) -> int:
    """Print the report of *rules* on *snapshot* and return the exit status.

    Missing inputs are in the report, or on standard error if no rule needs them.

    Args:
        snapshot: as loaded with ``is_reported``.
        rules: to judge by.
        args: of the command.
        extend: adds to the answer what the command prints alongside the rules.
        without_pods: *snapshot* without its pods. Rules that are not about pods and have the same
            result there are about the node: the table only counts them, unless ``--all`` is given.
    """
    terms = overrides(args)
    with output.progress("running the checks"):
        report = evaluate(snapshot, rules, terms)
    of_node: frozenset[str] = frozenset()
    if without_pods is not None and not args.all:
        pairs = zip(report.results, evaluate(without_pods, rules, terms).results, strict=True)
        of_node = frozenset(
            result.rule.code
            for result, other in pairs
            if result.rule.area not in _OF_PODS and result == other
        )
    reasons = "\n".join(reason for inputs in report.missing for reason in inputs.reasons)
    for unread in args.unread:
        if unread.cause not in reasons:
            unread.note()
    result = reports.answer(
        report,
        output.style(no_color=args.no_color),
        is_whole=args.all,
        cures={unread.cause: unread.cure for unread in args.unread if unread.cure is not None},
        of_node=of_node,
    )
    emit(result if extend is None else extend(result), args)
    code = reports.exit_code(report, strict=args.strict)
    return 3 if code == 0 and args.incomplete else code


def overrides(args: Namespace) -> Overrides:
    """Return the severities and waivers that ``--checks-file`` gives, for today.

    Raises:
        InputError: the file cannot be used.
    """
    if is_configured(args, "checks_file") and (path := settings(args).checks_file) is not None:
        from nodetopo.components.audit.checks_file import (  # noqa: PLC0415 - loads PyYAML
            load_checks,
        )

        return load_checks(path, datetime.now(UTC).date())
    return NO_OVERRIDES
