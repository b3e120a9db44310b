"""What holds whatever happens, in whatever order."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.components.gpus.health.ledger import view
from nodetopo.components.gpus.health.saved import decode, encode, lasting, resumed
from nodetopo.components.gpus.health.state import MAX_FAULTS, MAX_GPUS, HealthState
from nodetopo.model.gpu import EccErrors, Gpu, RemappedRows
from nodetopo.model.nvml_event import EventKind, NvmlEvent, NvmlStatus, NvmlTrouble
from nodetopo.model.snapshot import Snapshot
from nodetopo.model.xid import MAX_CODES, TABLE
from tests.components.gpus.health.gpu_history import A, B, C, Story, address, gpu, node, reasons

unhurried = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = (A, B, C)
CODES = (13, 31, 43, 45, 48, 63, 74, 79, 92, 94, 95, 109, 144, 151, 154, 999, 4711)

ROWS = st.builds(
    RemappedRows,
    correctable=st.just(0),
    uncorrectable=st.just(0),
    is_pending=st.booleans(),
    has_failed=st.sampled_from((False, False, False, True)),
)
GPU_FACTS: st.SearchStrategy[Mapping[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "is_lost": st.booleans(),
        "recovery_action": st.sampled_from((None, 0, 0, 1, 2, 3, 5, 9)),
        "remapped_rows": ROWS,
        "retired_pages_pending": st.booleans(),
        "ecc_errors": st.builds(EccErrors, volatile=st.integers(0, 3)),
    },
)
EVENTS = st.builds(
    NvmlEvent,
    kind=st.sampled_from((*[EventKind.XID] * 5, *EventKind)),
    gpu=st.sampled_from((*NAMES, A, B, None)),
    xid=st.sampled_from(CODES),
    count=st.integers(1, 9),
)
BATCHES = st.lists(EVENTS, min_size=1, max_size=6)
STATUSES = st.one_of(
    st.just(NvmlStatus()),
    st.builds(
        NvmlStatus,
        trouble=st.sampled_from(NvmlTrouble),
        code=st.sampled_from((None, 9, 18, 999)),
        failures=st.integers(1, 5),
    ),
)


@st.composite
def _snapshots(draw: st.DrawFn) -> Snapshot:
    gpus: list[Gpu] = [
        gpu(index, **draw(GPU_FACTS)) for index in range(3) if draw(st.integers(0, 4))
    ]
    shown = draw(st.sampled_from((None, 3, 3, 2, 0)))
    bus = None if shown is None else tuple(address(index) for index in range(shown))
    return node(*gpus, links=draw(st.sampled_from((4, 4, 3, 0))), pci_gpus=bus)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("events"), BATCHES),
        st.tuples(st.just("look"), st.tuples(_snapshots(), STATUSES)),
        st.tuples(st.just("look"), st.tuples(_snapshots(), st.just(NvmlStatus()))),
        st.tuples(st.just("wait"), st.sampled_from((0.5, 5.0, 30.0, 61.0, 600.0, 4000.0))),
    ),
    max_size=20,
)


def _play(story: Story, step: tuple[str, Any]) -> None:
    word, what = step
    match word:
        case "events":
            story.events(*what)
        case "look":
            story.look(*what)
        case _:
            story.wait(what)


def _played(steps: list[tuple[str, Any]], each: Callable[[Story], None] | None = None) -> Story:
    story = Story().look(node(gpu(0), gpu(1), gpu(2)))
    for step in steps:
        _play(story, step)
        if each is not None:
            each(story)
    return story


@unhurried
@given(STEPS)
def test_a_gpu_that_is_lost_is_never_healthy(steps: list[tuple[str, Any]]) -> None:
    lost: set[str] = set()
    story = Story().look(node(gpu(0), gpu(1), gpu(2)))
    for step in steps:
        _play(story, step)
        if step[0] == "look" and step[1][1].trouble is None:
            here = {one.id for one in step[1][0].gpus if not one.is_lost}
            lost = set(NAMES) - here
        assert all(not story.health(name).is_healthy for name in lost)


@unhurried
@given(STEPS)
def test_the_same_story_has_the_same_end(steps: list[tuple[str, Any]]) -> None:
    assert _played(steps).state == _played(steps).state


@unhurried
@given(STEPS, BATCHES, st.randoms(use_true_random=False))
def test_the_order_within_a_batch_does_not_matter(
    steps: list[tuple[str, Any]], batch: list[NvmlEvent], random: Random
) -> None:
    one, other = _played(steps), _played(steps)
    shuffled = random.sample(batch, len(batch))
    assert one.events(*batch).state == other.events(*shuffled).state


@unhurried
@given(STEPS, STEPS)
def test_a_document_in_the_middle_of_a_story_changes_nothing(
    before: list[tuple[str, Any]], after: list[tuple[str, Any]]
) -> None:
    story = _played(before)
    copy = Story(story.rules, story.now, decode(encode(story.state)))
    for step in after:
        _play(story, step)
        _play(copy, step)
    assert copy.state == story.state


@unhurried
@given(STEPS)
def test_a_restart_makes_no_gpu_healthy(steps: list[tuple[str, Any]]) -> None:
    written = HealthState()

    def restarts(story: Story) -> None:
        nonlocal written
        if lasting(story.state) != lasting(written):
            written = story.state
        after = view(resumed(decode(encode(written)), "one", story.now))
        assert reasons(after) == reasons(story.view)

    _played(steps, restarts)


@unhurried
@given(STEPS)
def test_no_gpu_recovers_before_its_time(steps: list[tuple[str, Any]]) -> None:
    unhealthy_at: dict[str, float] = {}
    story = Story().look(node(gpu(0), gpu(1), gpu(2)))
    for step in steps:
        _play(story, step)
        for name, record in story.state.gpus.items():
            if record.is_healthy and name in unhealthy_at:
                assert story.now - unhealthy_at.pop(name) >= story.rules.recovery_s
            bad = [fault.last for fault in record.faults if fault.is_fatal]
            if bad:
                unhealthy_at[name] = max(bad)


@unhurried
@given(STEPS)
def test_no_gpu_recovers_without_a_look_at_it(steps: list[tuple[str, Any]]) -> None:
    story = Story().look(node(gpu(0), gpu(1), gpu(2)))
    for step in steps:
        before = story.state
        _play(story, step)
        for name, record in before.gpus.items():
            if not record.is_healthy and story.state.gpus[name].is_healthy:
                assert step[0] == "look"
                assert name in {one.id for one in step[1][0].gpus}


@unhurried
@given(STEPS)
def test_a_view_is_sorted_and_says_why(steps: list[tuple[str, Any]]) -> None:
    seen = _played(steps).view
    assert list(seen) == sorted(seen)
    for health in seen.values():
        assert health.reason
        assert health.said
        assert health.kind
        assert health.is_healthy == health.is_degraded


@unhurried
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2**64 - 1)), max_size=600))
def test_memory_is_bounded_whatever_the_driver_sends(reports: list[tuple[int, int]]) -> None:
    story = Story().look()
    story.events(
        *(NvmlEvent(kind=EventKind.XID, gpu=f"GPU-{name}", xid=code) for name, code in reports)
    )
    assert len(story.state.gpus) <= MAX_GPUS
    for record in story.state.gpus.values():
        assert len(record.windows) <= MAX_CODES + len(TABLE) + 1
        assert len(record.faults) <= MAX_FAULTS
