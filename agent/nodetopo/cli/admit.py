"""``nodetopo admit``: this node's Topology Manager's answer for a manifest."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from nodetopo.admission.admit import Admission, ContainerAdmission, PodAdmission, admit, to_plain
from nodetopo.admission.device_manager import Preference, lowest_first
from nodetopo.admission.explain import listed
from nodetopo.admission.requests import size_text
from nodetopo.admission.suggestions import with_changes
from nodetopo.allocation.allocator import Allocator
from nodetopo.cli import output
from nodetopo.cli.output import Answer, Style, clean, emit, progress, warn, warn_each_kind
from nodetopo.cli.source import load, manifest_of, read_manifest_of
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.snapshot import Snapshot

_PROBES = ("kubelet", "numa", "cpu", "podresources")
"""Probes whose answers a verdict needs."""

_MARKS = {True: ("✓", "32", "admitted"), False: ("✗", "31", "rejected"), None: ("?", "36", "?")}
"""Of a verdict: a character, the SGR colour that it has on a terminal, and a word."""

_INDENT = "    "


def run(args: Namespace) -> int:
    """Print the verdicts; 1 when a pod is rejected, else 3 when one's is unknown.

    Raises:
        InputError: the manifest cannot be used, or holds no pod.
    """
    # Keeps `completion` and help fast.

    text = manifest_of(args)
    snapshot = load(args, needs_gpus=False, pods=True, needs_hardware=False)
    manifest = read_manifest_of(text, args, snapshot)
    flags = {"topology_manager_policy": args.policy, "topology_manager_scope": args.scope}
    replaced: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    settings = snapshot.kubelet or KubeletSettings(source="flags")
    if args.policy_option:
        stated = settings.topology_manager_options or {}
        replaced["topology_manager_options"] = {**stated, **dict(args.policy_option)}
    warn_each_kind(args, (f"{args.manifest}: {question}" for question in manifest.questions))
    if replaced:
        snapshot = replace(snapshot, kubelet=replace(settings, **replaced))
    prefer = preference(snapshot)
    with progress("looking for changes that would admit the pods"):
        found = admit(
            snapshot, manifest.pods, prefer=prefer, apart=manifest.are_apart, mates=manifest.mates
        )
        admission = with_changes(snapshot, found, manifest.pods, prefer=prefer)
    if any(pod.missing for pod in admission.pods):
        for issue in snapshot.issues:  # why the node could not be read
            is_known = any(issue.reason in warning for warning in args.warnings)
            if issue.probe in _PROBES and not is_known:
                warn(args, f"{issue.probe}: {issue.subject}: {issue.reason}")
    emit(answer(admission, snapshot.node, output.style(no_color=args.no_color)), args)
    return exit_code(admission)


def preference(snapshot: Snapshot) -> Preference:
    """Return the preference of the node's device plugins.

    For whole GPUs it is our allocator's choice, for other devices the lowest ids.
    """
    allocator = Allocator(snapshot) if snapshot.gpus else None

    def prefer(
        resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]:
        if allocator is None or not all(map(allocator.knows, available)):
            return lowest_first(resource, available, must_include, size)
        return frozenset(allocator.best(available, must_include, size))

    return prefer


def exit_code(admission: Admission) -> int:
    """Return 1 when a pod is rejected, else 3 when a verdict is unknown."""
    verdicts = {pod.admitted for pod in admission.pods}
    if False in verdicts:
        return 1
    return 3 if None in verdicts else 0


def answer(admission: Admission, node: str | None, style: Style) -> Answer:
    """Return *admission* in all formats.

    As text: a line for each pod, each container's grants, and suggestions. An input missing for
    several pods is listed below them, once.
    """
    scope = f" · scope {clean(admission.scope)}" if admission.scope else ""
    where = f"   node {clean(node)}" if node else ""
    lines = [f"Topology Manager policy {clean(admission.policy or 'not known')}{scope}{where}"]
    lacking: dict[str, list[str]] = {}  # input → the pods whose verdict it leaves open
    for pod in admission.pods:
        for text in pod.missing:
            lacking.setdefault(text, []).append(f"{pod.namespace}/{pod.name}")
    shared = {text: pods for text, pods in lacking.items() if len(pods) > 1}
    for pod in admission.pods:
        lines.append(_head(pod, style))
        lines += [f"{_INDENT}{clean(text)}" for text in pod.why]
        own = (text for text in pod.missing if text not in shared)
        lines += [f"{_INDENT}not known: {clean(text)}" for text in own]
        for container in pod.containers:
            lines.append(f"{_INDENT}{clean(container.name)}")
            lines += output.table(_grants(container), indent=2 * len(_INDENT)).splitlines()
        changes = pod.changes
        if pod.admitted is False and not changes and not pod.beside:
            changes = ("no single change and no pair of changes would admit it",)
        lines += [f"{_INDENT}→ {clean(text)}" for text in changes]
    mark, colour, _word = _MARKS[None]
    for text, pods in shared.items():
        names = clean(listed(pods))
        lines.append(f"{style.paint(mark, colour)} not known: {clean(text)}: {names}")
    return Answer(
        plain=to_plain(admission),
        table="".join(f"{line}\n" for line in lines),
        short="".join(f"{_head(pod, style)}\n" for pod in admission.pods),
    )


def _head(pod: PodAdmission, style: Style) -> str:
    mark, colour, word = _MARKS[pod.admitted]
    name = clean(f"{pod.namespace}/{pod.name}")
    verdict = f"{word}: {clean(pod.reason)}" if pod.reason else word
    verdict += " alone" if pod.not_beside else ""
    replicas, admitted = pod.replicas, pod.admitted_replicas
    if replicas is not None and admitted is not None and 0 < admitted < replicas:
        verdict += f": {admitted} of {replicas} replicas"
    if pod.not_beside:
        verdict += f"; not beside {clean(listed(pod.not_beside))}"
    text = "the verdict is not known" if pod.admitted is None else verdict
    qos = f" ({clean(pod.qos)})" if pod.qos else ""
    return f"{style.paint(mark, colour)} {name}{qos} {text}"


def _grants(container: ContainerAdmission) -> Iterator[tuple[str, str]]:
    """Yield a container's grants, kind and amount; sizes with four digits."""
    for text in container.why:
        yield "hint", text
    if len(container.cpus):
        yield "CPUs", str(container.cpus)
    for name, ids in container.devices.items():
        if ids:
            yield name, ", ".join(ids)
    for memory in container.memory:
        nodes = "+".join(map(str, memory.numa_nodes))
        yield memory.kind, f"{size_text(memory.size)} of NUMA {nodes}"
