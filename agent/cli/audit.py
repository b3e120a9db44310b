"""``nodetopo audit``: checks of settings and pods."""

from argparse import Namespace
from dataclasses import replace
from functools import partial

from agent.checks.rule import Area
from agent.cli import output
from agent.cli.health import add_only
from agent.cli.output import Answer
from agent.cli.parser import Parser, add_output
from agent.cli.source import add_settings, add_source, load
from agent.errors import InputError
from agent.model.pod import Pod
from agent.model.snapshot import Snapshot


def add(parser: Parser) -> None:
    """Add the flags."""
    add_only(parser)
    add_settings(parser, ("checks_file",), "checks")
    pods = parser.add_mutually_exclusive_group()
    pods.add_argument("--pod", metavar="NS/NAME", help="check this pod only")
    pods.add_argument("--manifest", metavar="FILE", help="check the pods of a manifest instead")
    add_output(parser)
    add_source(parser, pods=True)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Run the audit rules; 1 when one failed, 3 when one could not tell."""
    from agent.checks.catalogue import AUDIT  # noqa: PLC0415 - keeps the other commands fast
    from agent.cli import reports  # noqa: PLC0415 - same

    rules = reports.selected(AUDIT, args.only, "audit")
    pods = _pods(args)
    snapshot = load(args, needs_gpus=False, in_full=True, pods=pods is None)
    if pods is not None:
        snapshot = replace(snapshot, pods=pods)
    elif args.pod is not None:
        snapshot = _only_pod(snapshot, args.pod)
    if pods is None and any(rule.area is Area.ALIGNMENT for rule in rules):
        return reports.judge(snapshot, rules, args, partial(_with_alignment, args, snapshot))
    return reports.judge(snapshot, rules, args)


def _pods(args: Namespace) -> tuple[Pod, ...] | None:
    """Return the pods to check instead of those of the node; ``None`` without a manifest."""
    if args.manifest is None:
        return None
    from agent.cli.live import pods_of_manifest  # noqa: PLC0415 - loads yaml

    return pods_of_manifest(args)


def _with_alignment(args: Namespace, snapshot: Snapshot, answer: Answer) -> Answer:
    """Return *answer* with what every running pod with GPUs or HCAs really got."""
    from agent.checks.alignment.measure import measured  # noqa: PLC0415 - same
    from agent.cli.reports import plain, text  # noqa: PLC0415 - same

    rows = measured(snapshot)
    table = text(rows, output.style(no_color=args.no_color))
    return replace(
        answer,
        plain={**answer.plain, "alignment": plain(rows)},
        table=f"{table}\n{answer.table}" if table else answer.table,
    )


def _only_pod(snapshot: Snapshot, wanted: str) -> Snapshot:
    namespace, slash, name = wanted.rpartition("/")
    if snapshot.pods is None:
        cure = "use a source with pods, or --manifest FILE"
        raise InputError(f"this source knows no pods, so not {wanted!r}", cure)
    namespace = namespace if slash else "default"
    found = tuple(pod for pod in snapshot.pods if (pod.namespace, pod.name) == (namespace, name))
    if not found:
        known = ", ".join(f"{pod.namespace}/{pod.name}" for pod in snapshot.pods) or "none"
        raise InputError(f"no pod {namespace}/{name} on this node", f"pods are: {known}")
    return replace(snapshot, pods=found)
