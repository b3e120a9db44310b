"""``nodetopo export``: the cluster's topology, written for one scheduler."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from agent.cli.cluster_source import add_cluster_source, load_nodes
from agent.cli.output import json_text, note, progress, say, warn
from agent.cli.parser import Parser, add_style
from agent.cli.source import add_settings, settings
from agent.cluster.export.record import DEFAULT_NAME, FORMS, SCHEDULERS
from agent.cluster.kinds import selector
from agent.errors import InputError, NothingFound

_EPILOG = (
    "Levels are chosen from labels that all selected nodes with GPUs carry, broadest first: "
    "region, zone, tiers, NVLink domain and partition, host. What was left out, and what the "
    "scheduler would misread, is a warning. Nothing is written to the cluster: the output "
    "is for `kubectl apply`."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--for",
        dest="scheduler",
        required=True,
        choices=SCHEDULERS,
        metavar="SCHEDULER",
        help=f"one of {', '.join(SCHEDULERS)}",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("yaml", "json"),
        metavar="FORMAT",
        help="yaml or json (default: yaml; json for runai)",
    )
    add_style(parser)
    add_cluster_source(parser)
    add = parser.add_argument_group("object").add_argument
    forms = "; ".join(f"{name}: {', '.join(forms)}" for name, forms in FORMS.items() if forms)
    add("--levels", default="", metavar="KEY,…", help="broadest first (default: chosen)")
    add("--name", default=DEFAULT_NAME, help=f"of the object (default: {DEFAULT_NAME})")
    add("--form", help=f"for {forms} (default: the first)")
    add(
        "--size", type=int, metavar="N", help="pods of a group (default: the largest place's nodes)"
    )
    add("--in-namespace", metavar="NAME", help="of an object that lives in one")
    add("--cluster-id", metavar="UUID", help="of the cluster, for runai")
    add_settings(parser, ("label_prefix",), "labels")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the topology; 0, also where there is none to print, which is a warning."""
    from agent.cluster.export.formats import ExportOptions, export  # noqa: PLC0415 - 9 modules

    wanted = selector(args.selector).requirements
    equal = {one.key: one.value for one in wanted if one.value is not None and not one.is_negated}
    options = ExportOptions(
        name=args.name,
        prefix=settings(args).label_prefix,
        levels=tuple(key.strip() for key in args.levels.split(",") if key.strip()),
        node_labels=equal,
        form=args.form,
        namespace=args.in_namespace,
        size=args.size,
        cluster_id=args.cluster_id,
    )
    try:
        found = export(args.scheduler, load_nodes(args), options)
    except NothingFound as nothing:
        warn(args, f"nothing to export: {nothing}")
        return 0
    if found.text is not None and args.output is not None:
        raise InputError(f"{args.form} is a format of its own", "leave -o out")
    for remark in found.remarks:
        if remark.kind == "warning":
            warn(args, remark.text)
        else:
            note(remark.kind, remark.text)
    usual = "json" if args.scheduler == "runai" else "yaml"  # the body of a request
    with progress("writing it down"):
        text = found.text or _document_text(found.objects, found.document, args.output or usual)
    say(text)
    return 0


def _document_text(objects: Sequence[Any], document: Any, output: str) -> str:
    if output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return json_text(whole if objects else document)
    return _yaml_text(objects or (document,))


def _yaml_text(documents: Sequence[Any]) -> str:
    """Return *documents* as a YAML stream; a text of several lines in them as one sees it."""
    import yaml  # noqa: PLC0415 - 2 MiB and 20 ms that the other commands do without

    def shown(dumper: Any, text: str) -> yaml.ScalarNode:
        node: yaml.ScalarNode = dumper.represent_str(text)
        node.style = "|" if "\n" in text else node.style
        return node

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C: 1 s for 5,000 nodes, not 6
    dumper: Any = type("Dumper", (base,), {})
    dumper.add_representer(str, shown)
    text: str = yaml.dump_all(documents, Dumper=dumper, sort_keys=False, width=100)
    return text
