"""An admission as text: a line for each pod, what each container would get, and what would help."""

from collections.abc import Iterator

from agent.admission.admission_plain import to_plain
from agent.admission.admit import Admission, ContainerAdmission, PodAdmission
from agent.cli import render
from agent.cli.output import Answer
from agent.cli.render import Style, clean

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
    yield from render.table(_parts(one), indent=2 * len(_INDENT)).splitlines()


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
