"""``nodetopo cleanup``: removes our labels from every place of publication."""

from argparse import Namespace
from collections.abc import Iterator, Sequence

from msgspec.structs import asdict

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit, note, progress
from nodetopo.cli.settings import resolved
from nodetopo.components.labels.loop import configured_outputs
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import NODE, OUTPUTS, LabelOutput
from nodetopo.errors import InputError
from nodetopo.kernel import logs
from nodetopo.kubeapi.apply import connection
from nodetopo.tools.cluster.cleanup import Cleaned, clean, nodes_with_labels


def run(args: Namespace) -> int:
    """Remove, or show, nodetopo's labels; 0, or 3 if some could be left."""
    with progress("cleaning"):
        results = tuple(clean(_outputs(args), is_dry=args.dry_run))
    emit(_answer(results, is_dry=args.dry_run), args)
    problems: dict[str, list[str]] = {}
    for cleaned in results:
        if cleaned.problem is not None:
            problems.setdefault(cleaned.problem, []).append(cleaned.place)
    for problem, places in problems.items():
        note("error", f"cannot clean {', '.join(places)}: {problem}")
    return 3 if any(cleaned.problem is not None for cleaned in results) else 0


def _outputs(args: Namespace) -> Iterator[LabelOutput]:
    """Yield each place to clean."""
    # Loads structlog and the API client.

    asked = resolved(args)
    logs.configure(asked.settings.log_format, "warning")
    found, is_default = asked.settings, asked.origins["label_outputs"] == "default"
    if not args.all_nodes:
        yield from configured_outputs(found, OUTPUTS if is_default else found.label_outputs)
        return
    if not is_default and found.label_outputs != (NODE,):
        raise InputError("--all-nodes is for the output node", "run it on the nodes for others")
    connect = connection(found.kubeconfig)
    # List all before the first removal: a list continued minutes later is refused (410).
    for node in tuple(nodes_with_labels(connect)):
        yield NodeLabelPublisher(found.kubeconfig, node, connect=connect)


def _answer(found: Sequence[Cleaned], *, is_dry: bool) -> Answer:
    verb, short = "would remove" if is_dry else "removed", ""
    rows: list[tuple[str, str, str]] = []
    for cleaned in found:
        if cleaned.problem is not None:
            continue  # its error says so
        rows += [(cleaned.place, key, value) for key, value in sorted(cleaned.labels.items())]
        amount = f"{len(cleaned.labels)} label{'' if len(cleaned.labels) == 1 else 's'}"
        short += f"{cleaned.place}: "
        short += f"{verb} {amount}\n" if cleaned.is_there else "nothing to remove\n"
    return Answer(
        plain={"dry_run": is_dry, "places": [asdict(cleaned) for cleaned in found]},
        table=output.table([("PLACE", "LABEL", "VALUE"), *rows]) + short if rows else short,
        short=short,
    )
