"""Pods of the demo: placed by the device plugin, known to this process alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from nodetopo.admission.sizes import admitted_sizes
from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Verdict
from nodetopo.components.audit.alignment.measure import measured
from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.components.audit.component import Audit
from nodetopo.components.labels.component import Labels
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.fake_kubelet import AllocateView, FakeKubelet, ResourceView
from nodetopo.kernel.component import Component
from nodetopo.kernel.simulated_pods import NAMESPACE, SimulatedPods, orders
from nodetopo.machines.bundled import machine, names
from nodetopo.model.kubernetes import GPU_RESOURCE
from nodetopo.model.snapshot import Snapshot
from tests.kernel.running import added, kernel_of


class Plugin:
    """A kubelet whose plugin takes the first devices; keeps what was allocated."""

    def __init__(self, node: Snapshot) -> None:
        self.allocated: list[tuple[str, ...]] = []
        self._view = ResourceView(
            resource=GPU_RESOURCE,
            endpoint="nodetopo-gpu.sock",
            devices=tuple(
                PluginDevice(
                    id=gpu.id,
                    is_healthy=not gpu.is_lost,
                    numa_nodes=() if gpu.numa_node is None else (gpu.numa_node,),
                )
                for gpu in node.gpus
            ),
        )

    def view(self, _resource: str) -> ResourceView | None:
        """Return the devices."""
        return self._view

    def preferred(self, size: int, available: Sequence[str]) -> tuple[str, ...]:
        """Return the first ones."""
        return tuple(available[:size])

    def allocate(self, ids: Sequence[str]) -> AllocateView:
        """Keep *ids*."""
        self.allocated.append(tuple(ids))
        return AllocateView(cdi_devices=(), envs={}, device_nodes=())


def placed(node: Snapshot) -> tuple[Snapshot, Plugin]:
    plugin = Plugin(node)
    return SimulatedPods(cast(FakeKubelet, plugin)).read(node), plugin


@pytest.mark.parametrize(
    ("count", "gpus"), [(0, [1]), (1, [1]), (2, [1]), (4, [1, 1]), (8, [2, 1, 1]), (16, [4, 1, 1])]
)
def test_half_of_the_gpus_stay_free(count: int, gpus: list[int]) -> None:
    assert [order.gpus for order in orders(count)] == gpus


@pytest.mark.parametrize("name", names())
def test_every_machine_runs_pods_that_hold_different_gpus(name: str) -> None:
    node, plugin = placed(machine(name))
    held = [
        name
        for pod in node.pods or ()
        for given in pod.containers[0].devices or ()
        for name in given.ids
    ]
    assert held
    assert len(held) == len(set(held))
    assert [gpu for ids in plugin.allocated for gpu in ids] == held
    assert {pod.namespace for pod in node.pods or ()} == {NAMESPACE}
    unknown = {
        result.rule.code
        for result in evaluate(node, AUDIT).results
        if result.verdict is Verdict.UNKNOWN and result.rule.code.startswith(("QOS", "POD"))
    }
    assert not unknown - {"POD-010", "POD-011"}  # of which a captured machine lacks the inputs


def test_pods_are_placed_once() -> None:
    plugin = Plugin(machine("dgx-h100"))
    pods = SimulatedPods(cast(FakeKubelet, plugin))
    first, again = (pods.read(machine("dgx-h100")).pods for _ in range(2))
    assert first == again
    assert len(plugin.allocated) == 3


def test_the_notebook_alone_is_misaligned_and_the_kubelet_counts_all() -> None:
    node, _ = placed(machine("dgx-h100"))
    verdicts = {row.pod: row.verdict.value for row in measured(node)}
    assert verdicts == {
        "trainer-0": "aligned",
        "server-0": "aligned",
        "notebook-0": "misaligned",
    }
    sizes = {one.size: one.admitted for one in admitted_sizes(node, GPU_RESOURCE, range(1, 9))}
    assert sizes == {size: size <= 4 for size in range(1, 9)}
    state = node.kubelet_state
    assert state is not None
    assert state.cpu is not None
    assert state.cpu.default is not None
    taken = {cpu for entry in (state.cpu.entries or {}).values() for cpu in entry["main"].cpus}
    assert len(taken) == 3 * 8
    assert not taken & state.cpu.default.cpus


def test_nothing_is_placed_before_the_plugin_has_registered() -> None:
    plugin = Plugin(machine("dgx-h100"))
    registered, plugin._view = plugin._view, None  # type: ignore[assignment]
    pods = SimulatedPods(cast(FakeKubelet, plugin))
    assert pods.read(machine("dgx-h100")).pods == ()
    plugin._view = registered
    assert len(pods.read(machine("dgx-h100")).pods or ()) == 3


def _wanted(tmp_path: Path, simulated: str | None, kubelet: Plugin | None) -> dict[str, Component]:
    """Return the components that follow pods, where every setting asks for them."""
    kernel = kernel_of(
        tmp_path,
        simulated=simulated,
        audit_node=True,
        measure_pods=True,
        publish_pod_events=True,
        explain_rejections=True,
    )
    kernel.target = replace(kernel.target, fake_kubelet=cast("FakeKubelet | None", kubelet))
    made = {name: added(kernel, name) for name in ("audit", "labels")}
    return {name: component for name, component in made.items() if component is not None}


def test_a_demo_audits_and_measures_and_tells_nobody(tmp_path: Path) -> None:
    made = _wanted(tmp_path, "dgx-h100", Plugin(machine("dgx-h100")))
    audit, labels = made["audit"], made["labels"]
    assert isinstance(audit, Audit)
    assert [name for name, _ in audit.loops()] == ["audit", "pods"]
    assert (audit.events, audit.rejections) == (None, None)
    assert audit.alignment is not None
    assert audit.alignment.post is None
    assert isinstance(labels, Labels)
    labels.kernel.store.publish(machine("dgx-h100"))
    labels.loop.step()
    assert labels.shown().labels
    assert not labels.loop.needs_watch
    assert labels.observed().publish_writes == 0


def test_a_simulated_machine_beside_a_real_kubelet_has_no_simulated_pods(tmp_path: Path) -> None:
    assert _wanted(tmp_path, "dgx-h100", None) == {}


def test_a_real_machine_has_no_simulated_pods(tmp_path: Path) -> None:
    for kubelet in (None, Plugin(machine("dgx-h100"))):  # with one: --or-simulate, without kubelet
        made = _wanted(tmp_path, None, kubelet)
        assert [*made] == ["audit"]
        audit = made["audit"]
        assert isinstance(audit, Audit)
        assert audit.audit is not None
        assert audit.audit._read == audit.audit.with_audit_inputs
