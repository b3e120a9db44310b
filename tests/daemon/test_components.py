"""What the daemon consists of, by what the settings ask for."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.config.settings import Settings
from agent.daemon.check_terms import TermsFile
from agent.daemon.components import Parts
from agent.daemon.target import Machine, Scene
from agent.model.nvml_event import NvmlStatus
from agent.publish.node_config import NodeConfigWatch
from agent.store import SnapshotStore
from tests.daemon.plugin_sets import playing
from tests.deviceplugin.machines import node

NOTHING = Settings(node_name="gpu-1", publish_labels=False, publish_events=False)
WHOLE = node("h100x8-nvswitch-2numa-8cx7")


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    """Return the parts of a daemon on a machine of its own, which publishes nothing."""
    machine = Machine(read=lambda: WHOLE, reread=lambda: None, nvml=NvmlStatus)
    with playing() as played:
        yield Parts(
            settings=replace(NOTHING, kubeconfig=tmp_path / "none"),
            scene=Scene(machine=machine, simulated=None, socket_dir=tmp_path),
            store=SnapshotStore(),
            offering=played.offering,
            terms=TermsFile(None),
        )


def loops(parts: Parts) -> list[str]:
    parts.publish()
    return [name for name, _ in parts.loops()]


def test_what_nobody_asks_for_is_not_published(parts: Parts) -> None:
    assert loops(parts) == []
    assert (parts.labelling, parts.zoning, parts.events, parts.attending) == (None,) * 4


@pytest.mark.parametrize(
    ("name", "loop"),
    [
        ("publish_labels", "labels"),
        ("publish_zones", "zones"),
        ("annotate_pods", "zones"),
        ("publish_events", "events"),
    ],
)
def test_each_setting_asks_for_a_loop(parts: Parts, name: str, loop: str) -> None:
    parts.settings = replace(parts.settings, **{name: True})  # type: ignore[arg-type]
    assert loops(parts) == [loop]


def test_a_machine_that_is_not_there_has_no_zones(parts: Parts) -> None:
    parts.settings = replace(parts.settings, publish_zones=True, annotate_pods=True)
    parts.scene = replace(parts.scene, simulated="dgx-h100")
    assert loops(parts) == []


def test_labels_are_those_of_the_settings_in_force(parts: Parts) -> None:
    parts.settings = replace(parts.settings, publish_labels=True)
    parts.publish()
    assert parts.labelling is not None
    wishes = parts.labelling._wishes
    wishes.of(WHOLE)
    assert not wishes.is_news(WHOLE)
    parts.settings = replace(parts.settings, exclude_gpus=("0",))
    assert wishes.is_news(WHOLE)


def test_zones_learn_of_the_node_by_the_watch_of_its_labels(parts: Parts) -> None:
    parts.settings = replace(parts.settings, publish_labels=True, publish_zones=True)
    parts.publish()
    assert parts.labelling is not None
    assert parts.zoning is not None
    parts.labelling.watch.take("ADDED", {"metadata": {"name": "gpu-1", "uid": "u-1"}})
    assert parts.zoning._noted_uid == "u-1"


@pytest.mark.parametrize("publish_labels", [False, True])
def test_a_watch_that_follows_the_node_for_its_config_is_the_only_one(
    parts: Parts, publish_labels: bool
) -> None:
    watch = NodeConfigWatch(parts.settings.kubeconfig, "gpu-1", "config")
    parts.reloader = SimpleNamespace(watch=watch)  # type: ignore[assignment]
    parts.settings = replace(parts.settings, publish_labels=publish_labels, publish_zones=True)
    parts.publish()
    labelling = parts.labelling
    assert (labelling and labelling.watch) is (watch if publish_labels else None)
    assert parts.zoning is not None
    watch.take("ADDED", {"metadata": {"name": "gpu-1", "uid": "u-1"}})
    assert parts.zoning._noted_uid == "u-1"
