"""What the kernel and its components say for one scrape."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nodetopo.components.labels.component import Labels
from nodetopo.kernel.components import COMPONENTS, has_part
from nodetopo.kernel.http.families import KERNEL, readings
from tests.kernel.running import added, component_of, kernel_of, running


def test_a_component_that_is_off_has_the_reading_of_an_idle_one(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_labels=True)
    none = readings(kernel)
    assert set(none) == {KERNEL, *(name for name in COMPONENTS if has_part(name, "metrics"))}
    assert added(kernel, "labels") is not None
    assert readings(kernel) == none


def test_writes_are_counted(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_labels=True, publish_events=True)
    added(kernel, "labels")
    labels = component_of(kernel, Labels).loop
    lane = labels._lanes[0]
    lane.writes, lane.errors = 1, 2
    lane.output.refused = frozenset({("key", "value")})  # type: ignore[misc]
    assert kernel.events is not None
    kernel.events._posted = 1
    kernel.reloader = SimpleNamespace(  # type: ignore[assignment]
        config=SimpleNamespace(name="shared"), failures=4
    )
    found: Any = readings(kernel)
    own = found[KERNEL]
    assert (own.events_posted, own.config, own.config_failures) == (1, "shared", 4)
    counts = found["labels"]
    assert (counts.publish_writes, counts.publish_errors, counts.publish_refused) == (1, 2, 1)


def test_the_kernel_is_as_ready_as_all_its_components() -> None:
    def with_problem(text: str) -> Any:
        return SimpleNamespace(not_ready=lambda: (text,), close=lambda: None)

    with running() as kernel:
        assert kernel.not_ready() is None
        kernel.running = (with_problem("A: one"), with_problem("B: two\n3"))
        assert kernel.not_ready() == "A: one\nB: two 3"


def test_the_kernel_posts_events_about_the_node(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_events=True)
    assert kernel.writers == [kernel.events]
    assert kernel_of(tmp_path).events is None
