"""``nodetopo audit``: checks of settings and pods."""

from argparse import Namespace
from dataclasses import replace

from agent.cli import output
from agent.cli.health import add_only
from agent.cli.output import Answer
from agent.cli.parser import Parser, add_output
from agent.cli.source import add_settings, add_source, load, manifest_of, pods_of_manifest
from agent.errors import InputError
from agent.model.snapshot import Snapshot


def add(parser: Parser) -> None:
    """Add the flags."""
    add_only(parser)
    add_settings(parser, ("checks_file",), "checks")
    pods = parser.add_mutually_exclusive_group()
    pods.add_argument("--pod", metavar="NS/NAME", help="check this pod only")
    pods.add_argument("--manifest", metavar="FILE", help="check the pods of a manifest instead")
    add_output(parser)
    add_source(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Run the audit rules; 1 when one failed, 3 when one could not tell."""
    # Keeps `completion` and help fast.
    from agent.checks.alignment.measure import measured  # noqa: PLC0415
    from agent.checks.catalogue import AUDIT  # noqa: PLC0415
    from agent.checks.rule import Area  # noqa: PLC0415
    from agent.cli import reports  # noqa: PLC0415

    rules = reports.selected(AUDIT, args.only, "audit")
    if args.manifest is not None:
        text = manifest_of(args)
        snapshot = load(args, needs_gpus=False, in_full=True, is_reported=True)
        snapshot = replace(snapshot, pods=pods_of_manifest(text, args, snapshot))
        return reports.judge(snapshot, rules, args)
    snapshot = load(args, needs_gpus=False, in_full=True, pods=True, is_reported=True)
    if args.pod is not None:
        snapshot = _with_only_pod(snapshot, args.pod)
    if all(rule.area is not Area.ALIGNMENT for rule in rules):
        return reports.judge(snapshot, rules, args)

    def with_alignment(answer: Answer) -> Answer:
        """Return *answer* with what every running pod with GPUs or HCAs really got."""
        rows = measured(snapshot)
        table = reports.text(rows, output.style(no_color=args.no_color))
        return replace(
            answer,
            plain={**answer.plain, "alignment": reports.plain(rows)},
            table=f"{table}\n{answer.table}" if table else answer.table,
        )

    return reports.judge(snapshot, rules, args, with_alignment)


def _with_only_pod(snapshot: Snapshot, wanted: str) -> Snapshot:
    namespace, slash, name = wanted.rpartition("/")
    if snapshot.pods is None:
        cure = "use a source with pods, or --manifest FILE"
        raise InputError(f"this source knows no pods, so not {wanted!r}", cure)
    namespace = namespace if slash else "default"
    pods = tuple(pod for pod in snapshot.pods if (pod.namespace, pod.name) == (namespace, name))
    if not pods:
        known = ", ".join(f"{pod.namespace}/{pod.name}" for pod in snapshot.pods) or "none"
        raise InputError(f"no pod {namespace}/{name} on this node", f"pods are: {known}")
    return replace(snapshot, pods=pods)
