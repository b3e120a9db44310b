"""When labels are published, and by which settings."""

from pathlib import Path

from nodetopo.components.labels.component import Labels
from tests.kernel.running import WHOLE, added, component_of, kernel_of, loops, with_settings


def test_the_setting_asks_for_the_loop(tmp_path: Path) -> None:
    assert loops(kernel_of(tmp_path), ("labels",)) == []
    assert loops(kernel_of(tmp_path, publish_labels=True), ("labels",)) == ["labels"]


def test_labels_are_those_of_the_settings_in_force(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_labels=True)
    added(kernel, "labels")
    wishes = component_of(kernel, Labels).loop._source
    wishes.of(WHOLE)
    assert not wishes.is_news(WHOLE)
    with_settings(kernel, exclude_gpus=("0",))
    assert wishes.is_news(WHOLE)
