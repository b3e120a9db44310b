"""When zones are published, and how they learn of the Node."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodetopo.components.labels.component import Labels
from nodetopo.components.zones.component import Zones
from nodetopo.kernel.settings.node_config import NodeConfigWatch
from tests.kernel.running import component_of, kernel_of, loops

PUBLISHERS = ("labels", "zones")
SEEN = {"metadata": {"name": "gpu-1", "uid": "u-1"}}


@pytest.mark.parametrize("name", ["publish_zones", "annotate_pods"])
def test_each_setting_asks_for_the_loop(tmp_path: Path, name: str) -> None:
    asked: dict[str, Any] = {name: True}
    assert loops(kernel_of(tmp_path), PUBLISHERS) == []
    assert loops(kernel_of(tmp_path, **asked), PUBLISHERS) == ["zones"]


def test_a_machine_that_is_not_there_has_no_zones(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, simulated="dgx-h100", publish_zones=True, annotate_pods=True)
    assert loops(kernel, PUBLISHERS) == []


def test_zones_learn_of_the_node_by_the_watch_of_its_labels(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_labels=True, publish_zones=True)
    assert loops(kernel, PUBLISHERS) == ["labels", "zones"]
    component_of(kernel, Labels).loop.watch.take("ADDED", SEEN)
    assert component_of(kernel, Zones).loop._noted_uid == "u-1"


@pytest.mark.parametrize("publish_labels", [False, True])
def test_a_watch_that_follows_the_node_for_its_config_is_the_only_one(
    tmp_path: Path, publish_labels: bool
) -> None:
    kernel = kernel_of(tmp_path, publish_labels=publish_labels, publish_zones=True)
    watch = NodeConfigWatch(kernel.settings.kubeconfig, "gpu-1", "config")
    kernel.reloader = SimpleNamespace(watch=watch)  # type: ignore[assignment]
    kernel.watch = watch
    loops(kernel, PUBLISHERS)
    if publish_labels:
        assert component_of(kernel, Labels).loop.watch is watch
    watch.take("ADDED", SEEN)
    assert component_of(kernel, Zones).loop._noted_uid == "u-1"
