"""What the GPUs' component says of itself while things change."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.gpus.component import Gpus
from nodetopo.components.gpus.own_pods import ANNOTATION
from nodetopo.deviceplugin.cdi import OWN_KIND
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node
from tests.kernel.running import WHOLE, component_of, running, with_settings

GPU = "nvidia.com/gpu"
_REASON = "CdiNotWritten"


@contextmanager
def gpus(**settings: Any) -> Iterator[Gpus]:
    """Yield the component beside a kubelet; it has taken nothing yet."""
    with running("gpus", **settings) as kernel:
        yield component_of(kernel, Gpus)


def test_a_node_that_was_read_is_not_ready_before_its_gpus_are_offered() -> None:
    with gpus() as component:
        kernel = component.kernel
        assert kernel.not_ready() == "NotScanned: the node has not been read yet"
        kernel.store.publish(WHOLE)
        assert kernel.not_ready() is not None
        component.plugins.take(WHOLE)
        assert eventually(lambda: kernel.not_ready() is None)


def test_a_node_whose_gpus_are_all_refused_is_not_ready_and_says_why() -> None:
    with gpus(mig_strategy="single") as component:
        component.plugins.take(node("h100x8-nvswitch-2numa-mig"))
        (line,) = component.not_ready()
        assert line.startswith("NotOffered: ")
        assert "in MIG mode without a MIG device: GPU2" in line


def test_a_node_whose_gpus_no_container_could_use_is_not_ready_and_says_why(
    tmp_path: Path,
) -> None:
    with gpus(cdi_spec="write", cdi_kind=OWN_KIND, host_root=tmp_path) as component:
        component.plugins.take(WHOLE)
        assert eventually(
            lambda: [line.partition(": ")[0] for line in component.not_ready()] == [_REASON]
        )
        assert component.observed().devices == {GPU: {"healthy": 0, "unhealthy": 8}}


def test_the_resource_that_is_missing_is_that_of_the_settings_in_force() -> None:
    with gpus() as component:
        assert dict(component.observed().is_registered) == {GPU: False}
        with_settings(component.kernel, resource_name="acme.com/gpu")
        assert dict(component.observed().is_registered) == {"acme.com/gpu": False}


def test_devices_are_counted_by_their_health() -> None:
    with gpus() as component:
        component.plugins.take(WHOLE)
        component.plugins.take(replace(WHOLE, gpus=WHOLE.gpus[1:]))
        assert component.observed().devices == {GPU: {"healthy": 7, "unhealthy": 1}}


def test_xids_are_counted() -> None:
    with gpus() as component:
        component.health = SimpleNamespace(  # type: ignore[assignment]
            view={}, counts={("GPU-1", 62): 5}, notices=tuple
        )
        assert component.observed().xid_counts == {("GPU-1", 62): 5}


def test_the_loops_by_default() -> None:
    with gpus() as component:
        usual = ["scan", "reconcile", "registrations", "requesters"]
        assert [name for name, _ in component.loops()] == usual


@pytest.mark.parametrize("setting", ["pod_policies", "tell_pods"])
def test_pods_are_followed_where_a_setting_asks_for_it(setting: str) -> None:
    with gpus(**{setting: True}) as component:
        assert "pods with devices" in [name for name, _ in component.loops()]
        assert component.pod_events in component.kernel.writers
        requesters = component.kernel.requesters
        assert requesters is not None
        assert requesters.is_needed == (setting == "pod_policies")


def test_an_unknown_word_is_said_only_where_policies_count() -> None:
    annotations = {ANNOTATION: "fastest"}
    pod = {
        "metadata": {"namespace": "ml", "name": "a", "uid": "u", "annotations": annotations},
        "spec": {"nodeName": "gpu-1"},
    }
    for settings in ({"pod_policies": True}, {"tell_pods": True}):
        with gpus(**settings) as component:
            assert component.pods is not None
            assert component.pod_events is not None
            component.pods.take("ADDED", pod)
            assert component.pod_events._queue.has_events == ("pod_policies" in settings)


def test_lookups_are_counted_while_something_needs_them() -> None:
    with gpus() as component:
        requesters = component.kernel.requesters
        assert requesters is not None
        requesters.look(GPU, (), 1)
        assert component.observed().lookups == {}
        requesters.need("test", is_needed=True)
        requesters.look(GPU, (), 1)  # no kubelet answers here
        assert component.observed().lookups == {"known": 0, "ambiguous": 0, "failed": 1}
