"""``nodetopo publish``: publish the labels once, or preview the changes."""

from argparse import Namespace

from msgspec.structs import asdict

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit, note, warn
from nodetopo.cli.source import files_of, load, settings
from nodetopo.components.labels.loop import DesiredLabelsBuilder, NodeTiers, configured_outputs
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import LabelChanges, LabelOutput
from nodetopo.errors import AgentError, InputError
from nodetopo.kernel import logs


def run(args: Namespace) -> int:
    """Publish, or show, the labels; 0. An output that fails keeps no other waiting.

    Raises:
        InputError: another machine's labels would be published.
        AgentError: an output cannot be read or written; the first such error.
    """
    # Loads structlog and the API client.

    wanted = settings(args)
    given = (
        *files_of(args),
        args.machine,
        wanted.snapshot,
        wanted.machine,
    )
    if any(given) and not args.dry_run:
        raise InputError(
            "only the live node is published", "add --dry-run, or leave the source out"
        )
    logs.configure(wanted.log_format, "warning")
    wishes = DesiredLabelsBuilder(lambda: wanted, NodeTiers(wanted), lambda text: warn(args, text))
    if wishes.needs_node:
        wishes.note(NodeLabelPublisher(wanted.kubeconfig, wanted.node_name).labels())
    desired = wishes.of(load(args))
    changed: list[tuple[LabelOutput, LabelChanges]] = []
    failed: list[AgentError] = []
    for place in configured_outputs(wanted):
        try:
            changed.append(
                (place, place.changes(desired) if args.dry_run else place.publish(desired))
            )
        except AgentError as error:
            failed.append(error)
    if changed or not failed:
        emit(_answer(changed, is_dry=args.dry_run), args)
    for output_place, _ in changed:
        for key, value in sorted(output_place.refused):
            warn(args, f"{output_place.place} does not take {key}={value}")
    for failure in failed[1:]:
        note("error", str(failure))
    if failed:
        raise failed[0]
    return 0


def _answer(changed: list[tuple[LabelOutput, LabelChanges]], *, is_dry: bool) -> Answer:
    """Return the changes, made or previewed, in each output: + new, ~ other value, ? kept."""
    verb, short = "would change" if is_dry else "changed", ""
    rows: list[tuple[str, str, str]] = []
    for label_output, changes in changed:
        place = label_output.place
        rows += [(place, "+", f"{key}={value}") for key, value in sorted(changes.added.items())]
        rows += [
            (place, "~", f"{key}={before} → {after}")
            for key, (before, after) in sorted(changes.changed.items())
        ]
        rows += [(place, "?", f"{key}={value}") for key, value in sorted(changes.kept.items())]
        amount, count = "nothing", len(changes.added) + len(changes.changed)
        if count:
            amount = f"{count} label{'' if count == 1 else 's'}"
        elif changes:
            amount = "what is not a label"
        short += f"{place}: {verb} {amount}\n"
    plain = [
        {"output": one.name, "place": one.place, **asdict(changes)} for one, changes in changed
    ]
    return Answer(
        plain={"dry_run": is_dry, "places": plain},
        table=output.table(rows) + short,
        short=short,
    )
