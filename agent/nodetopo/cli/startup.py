"""The page that ``nodetopo run`` prints on a terminal once the kubelet has the devices."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Rule, Suite
from nodetopo.cli import output, reports
from nodetopo.cli.output import Style, clean, say
from nodetopo.cli.startup_report import Ready, ReadyResource, wait_ready
from nodetopo.cli.topo.rows import text
from nodetopo.deviceplugin.resources import Resource
from nodetopo.kernel.component import Kernel
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.node_rules import node_rules
from nodetopo.topology.matrix import matrix, word

if TYPE_CHECKING:  # the component rdma, where HCAs are offered
    from nodetopo.cli.startup_pools import ReadyPool


def show_when_ready(kernel: Kernel, stopping: threading.Event) -> bool:
    """Print a one-page summary once the kubelet has the devices; return whether it does."""
    ready = wait_ready(kernel, stopping)
    if ready is not None:
        show(ready)
    return ready is not None


def show(ready: Ready) -> None:
    """Print a one-page summary of the registered devices."""
    style, snapshot, target = output.style(no_color=False), ready.snapshot, ready.target
    gpus, hcas = len(snapshot.gpus), len(snapshot.hcas or ())
    kind = clean(snapshot.gpus[0].product or "GPU") if gpus else "GPU"
    machine = f"{gpus}x {kind}, {hcas} HCAs"
    if target.simulated is None:
        title = f"node {clean(snapshot.node or '?')}: {machine}"
    else:
        simulated = clean(target.simulated)
        title = f"SIMULATED machine {simulated}: {machine}. None of this hardware is here."

    kubelet = "an embedded stand-in for the kubelet" if target.fake_kubelet else "the kubelet"
    registration, allocations = [], []
    if target.served_by is not None:
        registration.append(f"{clean(target.served_by)}: nothing is registered with the kubelet")
    for ready_resource in ready.resources:
        plugin = ready_resource.plugin
        registration += [
            f"{ready_resource.resource.name}: {plugin.devices} devices registered with {kubelet}",
            f"socket {target.socket_dir / (plugin.endpoint or '?')}",
        ]
        if len(ready.resources) > 1:
            allocations.append(ready_resource.resource.name)
        allocations += _allocation(ready_resource, snapshot)
    together: list[str] = []
    for pool in ready.pools:
        count = f"{pool.plugin.devices} devices of {len(pool.resource.hcas)} HCAs"
        registration += [
            f"{pool.resource.name}: {count} ({pool.resource.pool.mode}) registered with {kubelet}",
            f"socket {target.socket_dir / (pool.plugin.endpoint or '?')}",
        ]
        if pool.resource.exception is not None:
            registration.append(f"{pool.resource.name}: {clean(pool.resource.exception)}")
        if pool.gpus:
            together += _pod_with_both(pool, snapshot)
    if not ready.resources:
        registration.append(f"no GPUs are offered: {ready.why_none}")
    registration += [f"not offered: {clean(refusal.reason)}" for refusal in ready.refusals]

    sections = (
        ("labels", output.table(ready.labels.items(), indent=2)),
        ("registration", _indented(registration)),
        *([("a pod asks for GPUs", _indented(allocations))] if allocations else []),
        *([("a pod asks for GPUs and HCAs", _indented(together))] if together else []),
        *(
            (suite.value, _checks(snapshot, rules, style))
            for suite in Suite
            if (rules := node_rules(suite))
        ),
        ("metrics", f"  {ready.metrics_url or 'not served'}\n"),
    )
    pages = [f"{style.paint(title, '1')}\n", text(matrix(snapshot), snapshot, style)]
    pages += [f"{style.paint(heading, '1')}\n{body}" for heading, body in sections]
    say("\n".join(pages))


def _allocation(one: ReadyResource, snapshot: Snapshot) -> Iterator[str]:
    """Yield the answer that the kubelet got for a resource, with the reasons for it."""
    placement = one.placement
    if placement is None:
        yield "no GPU is usable" if one.resource.is_whole else "no device is usable"
        return
    usable = sum(device.is_healthy for device in one.resource.devices)
    verb, answer = "would answer", placement.chosen
    if one.preferred is not None:
        verb, answer = "GetPreferredAllocation answered", one.preferred
    names = _gpu_names(answer, one.resource, snapshot)
    yield f"{len(placement.chosen)} of {usable}: {verb} {names}"
    yield f"policy {placement.rules.policy}, bandwidth model {placement.rules.model}"
    yield from map(clean, placement.reasons)


def _pod_with_both(pool: "ReadyPool", snapshot: Snapshot) -> Iterator[str]:
    """Yield the grants of a container that requests GPUs and devices of *pool*."""
    gpus = [gpu.name for gpu in snapshot.gpus if gpu.id in pool.gpus]
    yield f"{len(gpus)} GPUs, then {len(gpus)} of {pool.resource.name}: {' '.join(gpus)}"
    whole = ", every one of the pool" if pool.resource.pool.mode == "shared" else ""
    yield f"with {clean(' '.join(pool.hcas))}{whole}"
    hcas = snapshot.hcas or ()
    pairs = [
        f"{snapshot.gpus[pair.gpu].name} and {hcas[pair.hca].name}:"
        f" {'distance unknown' if pair.closeness is None else word(pair.closeness)}"
        for pair in pool.pairs
    ]
    yield clean(", ".join(pairs))


def _gpu_names(chosen: Iterable[str], resource: Resource, snapshot: Snapshot) -> str:
    """Return the GPUs of *chosen*; with a number for each where devices are parts of GPUs."""
    names = {gpu.id: gpu.name for gpu in snapshot.gpus}
    counts = Counter(sorted(names[resource.gpus[name]] for name in chosen))
    if resource.is_whole:
        return " ".join(counts)
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def _checks(snapshot: Snapshot, rules: Sequence[Rule], style: Style) -> str:
    """Return the problems that *rules* find, and how many passed and failed."""
    answer = reports.answer(evaluate(snapshot, rules), style, is_whole=True)
    summary = answer.table.rstrip("\n").rpartition("\n")[2]
    return _indented([*answer.short.splitlines(), summary])


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"  {line}\n" for line in lines)
