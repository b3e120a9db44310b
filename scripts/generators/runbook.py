"""The runbook, ``docs/operate/runbook.md``: tables and entries of `nodetopo.tools.explain`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import wrap

from nodetopo.tools.explain.alerts import ALERTS, AlertEntry
from nodetopo.tools.explain.events import NODE_EVENTS, POD_EVENTS, EventReason
from nodetopo.tools.explain.readiness import READINESS

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "runbook.md"

_WIDTH = 104

_HEAD = """\
# Runbook

Reports of the daemon about problems, and the steps to solve them: readiness, Events, alerts,
conflicts with other plugins, exits, and resets. Start from a symptom with
[troubleshoot.md](troubleshoot.md). [alerts.md](alerts.md) lists the alerting rules, and
[health.md](health.md) explains when a GPU is Unhealthy.

Generated from `agent/nodetopo/tools/explain/`, which `nodetopo explain WORD` prints too.

## Readiness and liveness

`/healthz` reports whether the process makes progress: it returns 503 if the main loop hasn't moved
for five minutes. It never reports hardware, because a new container repairs none.

`/readyz` reports whether the node's GPUs reach pods, with one line for each reason. Read it with
`kubectl get --raw /api/v1/namespaces/nodetopo/pods/POD:9430/proxy/readyz`. If a NetworkPolicy keeps
the API server out, use `kubectl -n nodetopo port-forward POD 9430`. A node without GPUs is Ready. A
daemon that isn't Ready still serves the devices it can.

| reason | meaning | what to do |
| --- | --- | --- |
"""

_EVENTS = """
## Events

List the Events of a node with `kubectl describe node NODE`, or with
`kubectl get events -n default --field-selector involvedObject.kind=Node,source=nodetopo`.

Repeated Events with one reason about one subject are a single object with a count. The daemon
writes the same Event at most once in ten minutes, and at most ten Events in an hour. Events about
one GPU or HCA keep their order: an Event is written sooner if a newer one about the same GPU is
due. The daemon drops an Event that has waited for more than an hour, and counts it in
`nodetopo_kubernetes_events_total`.

| reason | type | when | what to do |
| --- | --- | --- | --- |
"""

_POD_EVENTS = """
The settings `publish-pod-events`, `explain-rejections`, `pod-policies` and `tell-pods` (components
`pod-events`, `rejections` and `pod-placement`) add Events on pods. The daemon creates each of them
once. The first two share the limit of ten Events in an hour; the others have a limit of 120.

| reason | type | when | what to do |
| --- | --- | --- | --- |
"""

_ALERTS = """
The health of single devices is also in `status.containerStatuses[].allocatedResourcesStatus` of the
pods that have them (Kubernetes 1.36, `ResourceHealthStatus`).

## Alerts

One entry for each rule of [alerts.md](alerts.md). The commands use these lines, with the node of
the alert:

```
NODE=gpu-1
POD=$(kubectl -n nodetopo get pods -l app.kubernetes.io/name=nodetopo -o name \\
  --field-selector "spec.nodeName=$NODE")
agent() {
  kubectl -n nodetopo exec "$POD" -- nodetopo "$@" --host-root=/host --sysfs-root=/host/sys
}
```

If an alert has no label `node`, its `instance` is the address of the pod:
`kubectl -n nodetopo get pods -o wide` shows both. Run `nvidia-smi` and `dmesg` on the node itself.
Before you reset a GPU or unload its driver,
[stop the daemon](#before-you-reset-a-gpu-or-unload-the-driver) on that node. Before a reboot, run
`kubectl drain NODE --ignore-daemonsets`.
"""

_TAIL = """
## Two plugins for one resource

The kubelet uses the plugin that registered last and notifies no other plugin. Two plugins that both
register again would take the resource from each other forever, so nodetopo yields: it stops
registering, isn't Ready, and names the other plugin's socket in the log, in an Event and in
`nodetopo_resource_conflict`.

nodetopo registers again within a second once nothing listens on that socket. It also tries every
five minutes, in case the other plugin is alive but doesn't serve the kubelet. Two instances of
nodetopo, as can exist for a moment during an upgrade, aren't a conflict.

If you start NVIDIA's plugin alongside nodetopo and nodetopo then ends, restart NVIDIA's plugin:
kubelets up to 1.36 drop the newer plugin together with the older one.

## When the daemon exits

The process exits with status 1, and the kubelet restarts its container, only if a restart helps:

- The plugin directory was deleted and created again. A container that mounted the old directory
  can't see the new one.
- NVML refuses this container although the node has its GPUs. This happens at most once an hour.

A broken GPU, a driver that hangs or an unreachable API server never makes it exit.

## Before you reset a GPU or unload the driver

While the daemon checks health, NVML stays open in a child process, as with NVIDIA's device plugin.
The GPU Operator asks for a free driver by labels of the Node, which the daemon follows
([migrate.md](migrate.md#under-the-gpu-operator)). Manually, set such a label and remove it
afterwards:

```
kubectl label node $NODE nvidia.com/mig.config.state=pending --overwrite
kubectl label node $NODE nvidia.com/mig.config.state-
```

Without an API server, stop the daemon on that node first.
"""


def page() -> str:
    """Return the page as Markdown."""
    readiness = (f"| {it.name} | {it.meaning} | {it.cure} |\n" for it in READINESS)
    entries = ("\n" + "".join(f"{line}\n" for line in entry(alert)) for alert in ALERTS)
    return "".join(
        (
            *(_HEAD, *readiness),
            *(_EVENTS, *map(_event, NODE_EVENTS)),
            *(_POD_EVENTS, *map(_event, POD_EVENTS)),
            *(_ALERTS, *entries, _TAIL),
        )
    )


def _event(event: EventReason) -> str:
    return f"| {', '.join(event.names)} | {event.kind} | {event.when} | {event.cure} |\n"


def entry(alert: AlertEntry) -> Iterator[str]:
    """Yield the lines of the entry of *alert*; its heading is the name."""
    yield f"### {alert.name}"
    yield ""
    for title, text in (
        ("Means", alert.means),
        ("Impact", alert.impact),
        ("Confirm", alert.confirm),
        ("Do", alert.cure),
    ):
        yield from _item(f"- **{title}**: {text}")


def _item(text: str) -> Iterator[str]:
    """Yield *text* as an item of a list, broken nowhere inside code."""
    whole = [part.replace(" ", "\0") if at % 2 else part for at, part in enumerate(text.split("`"))]
    lines = wrap(
        "`".join(whole),
        _WIDTH,
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    yield from (line.replace("\0", " ") for line in lines)


def made() -> Mapping[Path, str]:
    """Return the page."""
    return {PAGE: page()}


def owned() -> Iterable[Path]:
    """Return the file of this generator."""
    return (PAGE,)
