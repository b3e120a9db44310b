"""The components of the daemon, as the settings ask for them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.config.settings import Settings
from agent.daemon.check_terms import OverridesFile
from agent.daemon.components import Components
from agent.daemon.target import Machine, Target
from agent.errors import InputError
from agent.model.nvml_event import NvmlStatus
from agent.publish.node_config import NodeConfigWatch
from agent.store import SnapshotStore
from tests.daemon.plugin_sets import serving_node
from tests.deviceplugin.machines import node

NOTHING = Settings(node_name="gpu-1", publish_labels=False, publish_events=False)
WHOLE = node("h100x8-nvswitch-2numa-8cx7")


@pytest.fixture
def components(tmp_path: Path) -> Iterator[Components]:
    """Return the components of a daemon that publishes nothing."""
    machine = Machine(read=lambda: WHOLE, reread=lambda: None, nvml=NvmlStatus)
    with serving_node() as served:
        yield Components(
            settings=replace(NOTHING, kubeconfig=tmp_path / "none"),
            target=Target(machine=machine, simulated=None, socket_dir=tmp_path),
            store=SnapshotStore(),
            plugins=served.plugins,
            overrides=OverridesFile(None),
        )


def loops(components: Components) -> list[str]:
    components.add_events()
    components.add_publishers()
    return [name for name, _ in components.loops()]


def test_without_settings_nothing_is_published(components: Components) -> None:
    assert loops(components) == []
    assert (components.labels, components.zones, components.events, components.pod_loops) == (
        None,
    ) * 4


@pytest.mark.parametrize(
    ("name", "loop"),
    [
        ("publish_labels", "labels"),
        ("publish_zones", "zones"),
        ("annotate_pods", "zones"),
        ("publish_events", "events"),
    ],
)
def test_each_setting_asks_for_a_loop(components: Components, name: str, loop: str) -> None:
    components.settings = replace(components.settings, **{name: True})  # type: ignore[arg-type]
    assert loops(components) == [loop]


def test_a_machine_that_is_not_there_has_no_zones(components: Components) -> None:
    components.settings = replace(components.settings, publish_zones=True, annotate_pods=True)
    components.target = replace(components.target, simulated="dgx-h100")
    assert loops(components) == []


def test_labels_are_those_of_the_settings_in_force(components: Components) -> None:
    components.settings = replace(components.settings, publish_labels=True)
    components.add_publishers()
    assert components.labels is not None
    wishes = components.labels._source
    wishes.of(WHOLE)
    assert not wishes.is_news(WHOLE)
    components.settings = replace(components.settings, exclude_gpus=("0",))
    assert wishes.is_news(WHOLE)


def test_zones_learn_of_the_node_by_the_watch_of_its_labels(components: Components) -> None:
    components.settings = replace(components.settings, publish_labels=True, publish_zones=True)
    components.add_publishers()
    assert components.labels is not None
    assert components.zones is not None
    components.labels.watch.take("ADDED", {"metadata": {"name": "gpu-1", "uid": "u-1"}})
    assert components.zones._noted_uid == "u-1"


@pytest.mark.parametrize("publish_labels", [False, True])
def test_a_watch_that_follows_the_node_for_its_config_is_the_only_one(
    components: Components, publish_labels: bool
) -> None:
    watch = NodeConfigWatch(components.settings.kubeconfig, "gpu-1", "config")
    components.reloader = SimpleNamespace(watch=watch)  # type: ignore[assignment]
    components.settings = replace(
        components.settings, publish_labels=publish_labels, publish_zones=True
    )
    components.add_publishers()
    labels = components.labels
    assert (labels and labels.watch) is (watch if publish_labels else None)
    assert components.zones is not None
    watch.take("ADDED", {"metadata": {"name": "gpu-1", "uid": "u-1"}})
    assert components.zones._noted_uid == "u-1"


@pytest.mark.parametrize("offer", ["auto", "always", "never"])
def test_slices_are_followed_whatever_is_offered_for_that_may_change(
    components: Components, offer: str
) -> None:
    components.settings = replace(components.settings, offer_gpus=offer)
    components.add_slices()
    assert components.slices is not None
    assert components.neighbours is not None
    assert components.published() is None


def test_no_slices_are_followed_for_one_look_or_without_an_api_server(
    components: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for settings in (
        replace(components.settings, once=True),
        replace(components.settings, kubeconfig=None),
    ):
        components.settings = settings
        components.add_slices()
        assert components.slices is None
    components.settings = replace(components.settings, dra=True)
    with pytest.raises(InputError, match="needs an API server"):
        components.add_slices()


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        (None, False),
        ("{", False),
        ("[]", False),
        ('{"claims": []}', False),
        ('{"claims": [{"uid": "1"}]}', True),
    ],
)
def test_our_dra_driver_runs_on_for_the_claims_that_it_left(
    components: Components, tmp_path: Path, text: str | None, *, is_needed: bool
) -> None:
    (tmp_path / "none").write_text("")
    components.settings = replace(components.settings, health_file=tmp_path / "health.json")
    components.add_slices()
    if text is not None:
        (tmp_path / "claims.json").write_text(text)
    assert components.needs_dra is is_needed
    components.settings = replace(components.settings, dra=True)
    assert components.needs_dra
    components.settings = replace(components.settings, once=True)
    assert not components.needs_dra
