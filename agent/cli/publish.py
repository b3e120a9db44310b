"""``nodetopo publish``: bring the labels out once, or show what that would change."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from agent.cli import output
from agent.cli.labels import add_places, add_rules
from agent.cli.output import Answer, emit, note, warn
from agent.cli.parser import Parser, add_output
from agent.cli.source import add_source, load, settings
from agent.errors import AgentError, InputError
from agent.publish.labels.output import LabelChanges, LabelOutput, LabelWish

_EPILOG = (
    "For a node without the daemon, as a job. One scan removes nothing: a label that it does not "
    "give stays, marked with ?, until the daemon has seen that twice."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument("--dry-run", action="store_true", help="show the changes, write nothing")
    add_output(parser)
    add_places(parser)
    add_rules(parser, "publish_clique", "topology_levels")
    add_source(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Publish, or show, the labels; 0. An output that fails keeps no other waiting.

    Raises:
        InputError: another machine's labels would be published.
        AgentError: an output cannot be read or written; that of the first that failed.
    """
    # Keeps the other commands fast: structlog takes 0.2 s.
    from agent.daemon import logs  # noqa: PLC0415
    from agent.daemon.labels_loop import LabelWishes, NodePlace, places  # noqa: PLC0415
    from agent.publish.labels.node import NodeLabelPublisher  # noqa: PLC0415

    found = settings(args)
    given = (args.snapshot, args.machine, args.topo_m, args.nccl_xml, found.snapshot, found.machine)
    if any(given) and not args.dry_run:
        raise InputError(
            "only the live node is published", "add --dry-run, or leave the source out"
        )
    logs.configure(found.log_format, "warning")
    wishes = LabelWishes(lambda: found, NodePlace(found), lambda text: warn(args, text))
    if wishes.needs_node:
        wishes.note(NodeLabelPublisher(found.kubeconfig, found.node_name).labels())
    wish = wishes.of(load(args))
    changed, failed = _changed(places(found), wish, is_dry=args.dry_run)
    if changed or not failed:
        emit(_answer(changed, is_dry=args.dry_run), args)
    for one, _ in changed:
        for key, value in sorted(one.refused):
            warn(args, f"{one.place} does not take {key}={value}")
    for error in failed[1:]:
        note("error", str(error))
    if failed:
        raise failed[0]
    return 0


def _changed(
    outputs: Sequence[LabelOutput], wish: LabelWish, *, is_dry: bool
) -> tuple[list[tuple[LabelOutput, LabelChanges]], list[AgentError]]:
    """Return what changed, or would change, and why the other outputs failed."""
    changed, failed = [], []
    for one in outputs:
        try:
            changed.append((one, one.changes(wish) if is_dry else one.publish(wish)))
        except AgentError as error:
            failed.append(error)
    return changed, failed


def _answer(changed: list[tuple[LabelOutput, LabelChanges]], *, is_dry: bool) -> Answer:
    verb = "would change" if is_dry else "changed"
    short = "".join(f"{one.place}: {verb} {_amount(found)}\n" for one, found in changed)
    rows = [row for one, found in changed for row in _rows(one, found)]
    plain = [{"output": one.name, "place": one.place, **asdict(found)} for one, found in changed]
    return Answer(
        plain={"dry_run": is_dry, "places": plain},
        table=output.table(rows) + short,
        short=short,
    )


def _rows(one: LabelOutput, found: LabelChanges) -> Iterator[tuple[str, str, str]]:
    for key, value in sorted(found.added.items()):
        yield one.place, "+", f"{key}={value}"
    for key, (before, after) in sorted(found.changed.items()):
        yield one.place, "~", f"{key}={before} → {after}"
    for key, value in sorted(found.kept.items()):
        yield one.place, "?", f"{key}={value}"


def _amount(found: LabelChanges) -> str:
    count = len(found.added) + len(found.changed)
    if not count:
        return "what is not a label" if found else "nothing"
    return f"{count} label{'' if count == 1 else 's'}"
