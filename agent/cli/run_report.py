"""What ``nodetopo run`` shows once the kubelet has the devices: the main job, on one page."""

from collections.abc import Iterator

from agent.checks.catalogue import AUDIT, HEALTH
from agent.checks.engine import Report, evaluate
from agent.cli import render, report
from agent.cli.output import say
from agent.cli.render import Style, clean
from agent.cli.topo_matrix import text as matrix_text
from agent.daemon import Ready
from agent.labels.catalogue import labels
from agent.topology.matrix import matrix


def show(ready: Ready) -> None:
    """Print the page to standard output."""
    style = render.style(no_color=False)
    say("\n".join(_sections(ready, style)))


def _sections(ready: Ready, style: Style) -> Iterator[str]:
    yield style.paint(_machine(ready), "1") + "\n"
    yield matrix_text(matrix(ready.snapshot), ready.snapshot, style)
    yield _section("labels", render.table(labels(ready.snapshot).items(), indent=2), style)
    yield _section("registration", _registration(ready), style)
    yield _section("a pod asks for GPUs", _allocation(ready), style)
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
    plugin = ready.plugin
    return (
        f"  {ready.scene.resource}: {plugin.devices} devices registered with {who}\n"
        f"  socket {ready.scene.socket_dir / (plugin.endpoint or '?')}\n"
    )


def _allocation(ready: Ready) -> str:
    """Return the answer the kubelet got, with the reasons for it."""
    found = ready.placement
    if found is None:
        return "  no GPU is usable\n"
    size, usable = len(found.chosen), sum(not gpu.is_lost for gpu in ready.snapshot.gpus)
    names = {gpu.id: gpu.name for gpu in ready.snapshot.gpus}
    answer = ready.preferred if ready.preferred is not None else found.chosen
    asked = "GetPreferredAllocation answered" if ready.preferred is not None else "would answer"
    lines = [f"{size} of {usable}: {asked} {' '.join(sorted(names[i] for i in answer))}"]
    lines += [f"policy {found.rules.policy}, bandwidth model {found.rules.model}"]
    lines += [clean(reason) for reason in found.reasons]
    return "".join(f"  {line}\n" for line in lines)


def _checks(found: Report, style: Style) -> str:
    answer = report.answer(found, style)
    summary = answer.table.rstrip("\n").rpartition("\n")[2]
    problems = "".join(f"  {line}\n" for line in answer.short.splitlines())
    return f"{problems}  {summary}\n"
