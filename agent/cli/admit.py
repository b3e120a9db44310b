"""``nodetopo admit``: what this node's Topology Manager would answer for a manifest."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace

from agent.admission.admit import Admission, ContainerAdmission, PodAdmission, to_plain
from agent.admission.device_manager import Preference, lowest_first
from agent.admission.merge import POLICIES, SCOPES
from agent.allocation.allocator import Allocator
from agent.cli import output
from agent.cli.output import Answer, Style, clean, emit, progress, warn
from agent.cli.parser import Parser, add_output
from agent.cli.source import add_source, load
from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import Snapshot

# An admission as text: a line for each pod, what each container would get, and what would help.

_MARKS = {True: ("✓", "32", "admitted"), False: ("✗", "31", "rejected"), None: ("?", "36", "?")}
"""Of a verdict: a character, the SGR colour that it has on a terminal, and a word."""


_INDENT = "    "


_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))
"""Bytes, the largest first."""


def exit_code(admission: Admission) -> int:
    """Return 1 when a pod is rejected, else 3 when the verdict on one is not known."""
    verdicts = {pod.admitted for pod in admission.pods}
    if False in verdicts:
        return 1
    return 3 if None in verdicts else 0


def answer(admission: Admission, node: str | None, style: Style) -> Answer:
    """Return *admission* in all formats."""
    return Answer(
        plain=to_plain(admission),
        table="".join(f"{line}\n" for line in _lines(admission, node, style)),
        short="".join(f"{_head(pod, style)}\n" for pod in admission.pods),
    )


def _lines(admission: Admission, node: str | None, style: Style) -> Iterator[str]:
    policy = admission.policy or "not known"
    scope = f" · scope {clean(admission.scope)}" if admission.scope else ""
    where = f"   node {clean(node)}" if node else ""
    yield f"Topology Manager policy {clean(policy)}{scope}{where}"
    for pod in admission.pods:
        yield _head(pod, style)
        yield from (f"{_INDENT}{clean(text)}" for text in pod.why)
        yield from (f"{_INDENT}not known: {clean(text)}" for text in pod.missing)
        for container in pod.containers:
            yield from _container(container)
        yield from (f"{_INDENT}→ {clean(text)}" for text in _remedies(pod))


def _remedies(pod: PodAdmission) -> tuple[str, ...]:
    if pod.admitted is False and not pod.changes:
        return ("no single change was found that would admit it",)
    return pod.changes


def _head(pod: PodAdmission, style: Style) -> str:
    mark, colour, word = _MARKS[pod.admitted]
    name = clean(f"{pod.namespace}/{pod.name}")
    verdict = f"{word}: {clean(pod.reason)}" if pod.reason else word
    text = "the verdict is not known" if pod.admitted is None else verdict
    qos = f" ({clean(pod.qos)})" if pod.qos else ""
    return f"{style.paint(mark, colour)} {name}{qos} {text}"


def _container(one: ContainerAdmission) -> Iterator[str]:
    yield f"{_INDENT}{clean(one.name)}"
    yield from output.table(_parts(one), indent=2 * len(_INDENT)).splitlines()


def _parts(one: ContainerAdmission) -> Iterator[tuple[str, str]]:
    for text in one.why:
        yield "hint", text
    if len(one.cpus):
        yield "CPUs", str(one.cpus)
    for name, ids in one.devices.items():
        if ids:
            yield name, ", ".join(ids)
    for it in one.memory:
        yield it.kind, f"{_rounded(it.size)} of NUMA {'+'.join(map(str, it.numa_nodes))}"


def _rounded(size: int) -> str:
    """Return *size* in bytes with four digits, in the largest unit of which it has one."""
    unit, suffix = next(((unit, name) for unit, name in _UNITS if size >= unit), (1, ""))
    return f"{size / unit:.4g}{suffix}"


# What the device plugins of a node prefer: of GPUs, what our allocator would choose.


def preference(snapshot: Snapshot) -> Preference:
    """Return what answers for the plugins; of devices other than whole GPUs, the lowest ids."""
    allocator = Allocator(snapshot) if snapshot.gpus else None

    def prefer(
        resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]:
        if allocator is None or not all(map(allocator.knows, available)):
            return lowest_first(resource, available, must_include, size)
        return frozenset(allocator.best(available, must_include, size))

    return prefer


_EPILOG = (
    "The pods of the manifest come one after the other; each finds what those before it left. "
    "A controller counts as one of its pods. Exit status: 0 all are admitted, 1 one is rejected, "
    "3 something is missing for a verdict. It takes the kubelet's settings, its state files or "
    "PodResources socket, and the running pods; nothing is changed."
)


_NEEDED = ("kubelet", "numa", "cpu", "podresources")
"""Probes whose answers a verdict needs."""


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
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
    from agent.cli.live import pods_of_manifest  # noqa: PLC0415 - loads yaml

    pods = pods_of_manifest(args)
    snapshot = _with_settings(load(args, needs_gpus=False, pods=True), args)
    prefer = preference(snapshot)
    with progress("looking for what would admit the pods"):
        found = with_changes(snapshot, admit(snapshot, pods, prefer=prefer), pods, prefer=prefer)
    if any(pod.missing for pod in found.pods):
        _tell_why(args, snapshot)
    emit(answer(found, snapshot.node, output.style(no_color=args.no_color)), args)
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
