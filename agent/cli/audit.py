"""``nodetopo audit``: checks of settings and pods."""

from argparse import Namespace
from dataclasses import replace

from agent.cli.files import read_text
from agent.cli.health import add_only
from agent.cli.parser import Subparsers, add_command, add_output
from agent.cli.source import add_source, load
from agent.errors import InputError
from agent.model.snapshot import Snapshot


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "audit", "check settings and pods")
    add_only(parser)
    pods = parser.add_mutually_exclusive_group()
    pods.add_argument("--pod", metavar="NS/NAME", help="check this pod only")
    pods.add_argument("--manifest", metavar="FILE", help="check the pods of a manifest instead")
    add_output(parser)
    add_source(parser, pods=True)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Run the audit rules; 1 when one failed, 3 when one could not tell."""
    from agent.checks.catalogue import AUDIT  # noqa: PLC0415 - keeps the other commands fast
    from agent.cli import judge  # noqa: PLC0415 - same

    rules = judge.selected(AUDIT, args.only, "audit")
    snapshot = load(args, needs_gpus=False, pods=args.manifest is None)
    if args.manifest is not None:
        snapshot = _with_manifest(snapshot, args.manifest)
    elif args.pod is not None:
        snapshot = _only_pod(snapshot, args.pod)
    return judge.judge(snapshot, rules, args)


def _with_manifest(snapshot: Snapshot, name: str) -> Snapshot:
    from agent.probes.pods import pods_from_manifest  # noqa: PLC0415 - loads yaml

    text = read_text(name)
    try:
        pods = pods_from_manifest(text)
    except InputError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None
    if not pods:
        raise InputError(f"{name} holds no pod", "give a Pod or a controller with a pod template")
    return replace(snapshot, pods=pods)


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
