"""``nodetopo admit``: what this node's Topology Manager would answer for a manifest."""

from argparse import Namespace
from dataclasses import replace

from agent.admission.merge import POLICIES, SCOPES
from agent.cli import render
from agent.cli.output import emit, warn
from agent.cli.parser import Subparsers, add_command, add_output
from agent.cli.progress import progress
from agent.cli.source import add_source, load
from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import Snapshot

_EPILOG = (
    "The pods of the manifest come one after the other; each finds what those before it left. "
    "A controller counts as one of its pods. Exit status: 0 all are admitted, 1 one is rejected, "
    "3 something is missing for a verdict. It takes the kubelet's settings, its state files or "
    "PodResources socket, and the running pods; nothing is changed."
)

_NEEDED = ("kubelet", "numa", "cpu", "podresources")
"""Probes whose answers a verdict needs."""


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "admit", "print whether this node's kubelet would admit a pod", epilog=_EPILOG
    )
    add = parser.add_argument
    add("--manifest", metavar="FILE", required=True, help="the pods to ask about, - for stdin")
    group = parser.add_argument_group("what if", "default: the kubelet's own settings")
    group.add_argument(
        "--policy",
        choices=POLICIES,
        metavar="WORD",
        help=f"topologyManagerPolicy: {', '.join(POLICIES)}",
    )
    group.add_argument(
        "--scope",
        choices=SCOPES,
        metavar="WORD",
        help=f"topologyManagerScope: {' or '.join(SCOPES)}",
    )
    add_output(parser)
    add_source(parser, pods=True)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the verdicts; 1 when a pod is rejected, else 3 when one's is not known.

    Raises:
        InputError: the manifest cannot be used, or holds no pod.
    """
    # Keeps the other commands fast.
    from agent.admission.admit import admit  # noqa: PLC0415
    from agent.admission.suggestions import with_changes  # noqa: PLC0415
    from agent.cli.admit_preference import preference  # noqa: PLC0415
    from agent.cli.admit_text import answer, exit_code  # noqa: PLC0415
    from agent.cli.manifest import pods_of_manifest  # noqa: PLC0415 - loads yaml

    pods = pods_of_manifest(args)
    snapshot = _with_settings(load(args, needs_gpus=False, pods=True), args)
    prefer = preference(snapshot)
    with progress("looking for what would admit the pods"):
        found = with_changes(snapshot, admit(snapshot, pods, prefer=prefer), pods, prefer=prefer)
    if any(pod.missing for pod in found.pods):
        _tell_why(args, snapshot)
    emit(answer(found, snapshot.node, render.style(no_color=args.no_color)), args)
    return exit_code(found)


def _tell_why(args: Namespace, snapshot: Snapshot) -> None:
    """Warn of what came back where the node was asked for what a verdict needs."""
    for issue in snapshot.issues:
        if issue.probe in _NEEDED:
            text = f"{issue.probe}: {issue.subject}: {issue.reason}"
            if not any(issue.reason in told for told in args.warnings):
                warn(args, text)


def _with_settings(snapshot: Snapshot, args: Namespace) -> Snapshot:
    """Return *snapshot* with the settings that the flags replace."""
    changes = {"topology_manager_policy": args.policy, "topology_manager_scope": args.scope}
    stated = {name: value for name, value in changes.items() if value is not None}
    if not stated:
        return snapshot
    settings = snapshot.kubelet or KubeletSettings(source="flags")
    return replace(snapshot, kubelet=replace(settings, **stated))
