"""Which components the settings ask for, and what one offers to another."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodetopo.components.dra.component import Dra
from nodetopo.components.dra.terms import needs_driver
from nodetopo.components.labels.component import Labels
from nodetopo.components.zones.component import Zones
from nodetopo.errors import InputError
from nodetopo.kernel.component import Kernel
from nodetopo.kernel.settings.node_config import NodeConfigWatch
from tests.kernel.running import WHOLE, added, component_of, kernel_of, running, with_settings

PUBLISHERS = ("labels", "zones")
SEEN = {"metadata": {"name": "gpu-1", "uid": "u-1"}}


def loops(kernel: Kernel, names: Iterable[str] = PUBLISHERS) -> list[str]:
    """Return the loops of the components *names* that are wanted."""
    made = [added(kernel, name) for name in names]
    return [name for it in made if it is not None for name, _ in it.loops()]


def test_without_settings_nothing_is_published(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path)
    assert loops(kernel) == []
    assert kernel.events is None


@pytest.mark.parametrize(
    ("name", "loop"),
    [("publish_labels", "labels"), ("publish_zones", "zones"), ("annotate_pods", "zones")],
)
def test_each_setting_asks_for_a_loop(tmp_path: Path, name: str, loop: str) -> None:
    asked: dict[str, Any] = {name: True}
    assert loops(kernel_of(tmp_path, **asked)) == [loop]


def test_events_about_the_node_are_the_kernels(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_events=True)
    assert kernel.writers == [kernel.events]


def test_a_machine_that_is_not_there_has_no_zones(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, simulated="dgx-h100", publish_zones=True, annotate_pods=True)
    assert loops(kernel) == []


def test_labels_are_those_of_the_settings_in_force(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_labels=True)
    added(kernel, "labels")
    wishes = component_of(kernel, Labels).loop._source
    wishes.of(WHOLE)
    assert not wishes.is_news(WHOLE)
    with_settings(kernel, exclude_gpus=("0",))
    assert wishes.is_news(WHOLE)


def test_zones_learn_of_the_node_by_the_watch_of_its_labels(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_labels=True, publish_zones=True)
    assert loops(kernel) == ["labels", "zones"]
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
    loops(kernel)
    if publish_labels:
        assert component_of(kernel, Labels).loop.watch is watch
    watch.take("ADDED", SEEN)
    assert component_of(kernel, Zones).loop._noted_uid == "u-1"


@pytest.mark.parametrize("offer", ["auto", "always", "never"])
def test_slices_are_followed_whatever_is_offered_for_that_may_change(
    tmp_path: Path, offer: str
) -> None:
    (tmp_path / "none").write_text("")
    kernel = kernel_of(tmp_path, offer_gpus=offer)
    assert loops(kernel, ["dra"]) == ["slices"]
    assert kernel.claims is component_of(kernel, Dra).neighbours
    assert kernel.published() is None


def test_no_slices_are_followed_for_one_look_or_without_an_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert loops(kernel_of(tmp_path, once=True), ["dra"]) == []
    assert loops(kernel_of(tmp_path, kubeconfig=None), ["dra"]) == []
    with pytest.raises(InputError, match="needs an API server"):
        loops(kernel_of(tmp_path, kubeconfig=None, dra=True), ["dra"])


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
    tmp_path: Path, text: str | None, *, is_needed: bool
) -> None:
    (tmp_path / "none").write_text("")
    if text is not None:
        (tmp_path / "claims.json").write_text(text)
    kernel = kernel_of(tmp_path, health_file=tmp_path / "health.json")
    assert needs_driver(kernel) is is_needed
    with_settings(kernel, dra=True)
    assert needs_driver(kernel)


@pytest.mark.parametrize(("dra", "has_claims"), [(False, True), (True, False)])
def test_containers_of_claims_that_are_left_need_names_of_gpus(
    tmp_path: Path, *, dra: bool, has_claims: bool
) -> None:
    (tmp_path / "claims.json").write_text('{"claims": [{"uid": "1"}]}')
    with running("gpus", "dra", dra=dra, health_file=tmp_path / "health.json") as kernel:
        assert kernel.gpus is not None
        assert kernel.gpus.has_claims is has_claims
