"""What ``nodetopo run`` shows once the kubelet has the devices: the main job, on one page."""

from collections import Counter
from collections.abc import Iterable, Iterator

from agent.checks.catalogue import AUDIT, HEALTH
from agent.checks.engine import Report, evaluate
from agent.cli import render, report
from agent.cli.output import say
from agent.cli.render import Style, clean
from agent.cli.topo.matrix import text as matrix_text
from agent.daemon.startup_report import Ready, ReadyResource
from agent.deviceplugin.resources import Resource
from agent.model.snapshot import Snapshot
from agent.topology.matrix import matrix


def show(ready: Ready) -> None:
    """Print the page to standard output."""
    style = render.style(no_color=False)
    say("\n".join(_sections(ready, style)))


def _sections(ready: Ready, style: Style) -> Iterator[str]:
    yield style.paint(_machine(ready), "1") + "\n"
    yield matrix_text(matrix(ready.snapshot), ready.snapshot, style)
    yield _section("labels", render.table(ready.labels.items(), indent=2), style)
    yield _section("registration", _registration(ready), style)
    yield _section("a pod asks for GPUs", "".join(_allocations(ready)), style)
    health, audit = evaluate(ready.snapshot, HEALTH), evaluate(ready.snapshot, AUDIT)
    yield _section("health", _checks(health, style), style)
    yield _section("audit", _checks(audit, style), style)
    yield _section("metrics", f"  {ready.metrics_url or 'not served'}\n", style)


def _section(title: str, body: str, style: Style) -> str:
    return f"{style.paint(title, '1')}\n{body}"


def _machine(ready: Ready) -> str:
    gpus, hcas = len(ready.snapshot.gpus), len(ready.snapshot.hcas or ())
    kind = clean(ready.snapshot.gpus[0].product or "GPU") if gpus else "GPU"
    machine = f"{gpus}x {kind}, {hcas} HCAs"
    if ready.scene.simulated is None:
        return f"node {clean(ready.snapshot.node or '?')}: {machine}"
    return (
        f"SIMULATED machine {clean(ready.scene.simulated)}: {machine}. "
        "None of this hardware is here."
    )


def _registration(ready: Ready) -> str:
    who = "an embedded stand-in for the kubelet" if ready.scene.stand_in else "the kubelet"
    lines = []
    for one in ready.resources:
        lines.append(f"{one.resource.name}: {one.plugin.devices} devices registered with {who}")
        lines.append(f"socket {ready.scene.socket_dir / (one.plugin.endpoint or '?')}")
    lines += [f"not offered: {clean(refusal.reason)}" for refusal in ready.refusals]
    return "".join(f"  {line}\n" for line in lines)


def _allocations(ready: Ready) -> Iterator[str]:
    """Yield, for each resource, the answer the kubelet got, with the reasons for it."""
    for one in ready.resources:
        if len(ready.resources) > 1:
            yield f"  {one.resource.name}\n"
        yield "".join(f"  {line}\n" for line in _allocation(one, ready))


def _allocation(one: ReadyResource, ready: Ready) -> Iterator[str]:
    found = one.placement
    if found is None:
        yield "no GPU is usable" if one.resource.is_whole else "no device is usable"
        return
    usable = sum(device.is_healthy for device in one.resource.devices)
    answer = one.preferred if one.preferred is not None else found.chosen
    asked = "GetPreferredAllocation answered" if one.preferred is not None else "would answer"
    yield f"{len(found.chosen)} of {usable}: {asked} {_named(answer, one.resource, ready.snapshot)}"
    yield f"policy {found.rules.policy}, bandwidth model {found.rules.model}"
    yield from map(clean, found.reasons)


def _named(chosen: Iterable[str], resource: Resource, snapshot: Snapshot) -> str:
    """Return the GPUs of *chosen*; with a number for each where devices are parts of GPUs."""
    names = {gpu.id: gpu.name for gpu in snapshot.gpus}
    counts = Counter(sorted(names[resource.gpus[name]] for name in chosen))
    if resource.is_whole:
        return " ".join(counts)
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def _checks(found: Report, style: Style) -> str:
    answer = report.answer(found, style)
    summary = answer.table.rstrip("\n").rpartition("\n")[2]
    problems = "".join(f"  {line}\n" for line in answer.short.splitlines())
    return f"{problems}  {summary}\n"
