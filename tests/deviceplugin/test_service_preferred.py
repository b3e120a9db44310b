"""GetPreferredAllocation, with a raw client."""

from collections.abc import Callable, Iterator, Sequence
from threading import Event, current_thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.deviceplugin import service
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.service import InformedPrefer, Prefer
from tests.deviceplugin.machines import GPUS
from tests.deviceplugin.raw_client import Client, serving
from tests.generous_deadlines import GENEROUS, PATIENCE_S


@pytest.fixture
def served() -> Iterator[Client]:
    with serving() as it:
        yield it


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    with serving() as it:
        yield it


def test_the_preferred_set_is_the_injected_choice() -> None:
    with serving(prefer=lambda available, _, size: tuple(reversed(available))[:size]) as served:
        assert served.preferred(["GPU-0", "GPU-1", "GPU-2"], [], 2) == ("GPU-2", "GPU-1")


def test_each_container_gets_its_own_preferred_set(served: Client) -> None:
    ask = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["a"], allocation_size=1)
    request = pb.PreferredAllocationRequest(container_requests=[ask, ask])
    answer = served.stub.GetPreferredAllocation(request)
    assert [tuple(one.deviceIDs) for one in answer.container_responses] == [("a",), ("a",)]


def raising(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    raise ZeroDivisionError((available, required, size))


WRONG: list[Callable[..., Any]] = [
    raising,
    lambda *_: None,
    lambda *_: [],
    lambda *_: ["GPU-77", "GPU-1", "GPU-1"],
    lambda available, *_: available,
    lambda *_: [1, None, {}],
]


@pytest.mark.parametrize("prefer", WRONG)
def test_a_wrong_choice_still_gives_a_valid_answer(prefer: Prefer) -> None:
    with serving(prefer=prefer) as served:
        answer = served.preferred(["GPU-0", "GPU-1", "GPU-2", "GPU-3"], ["GPU-3"], 2)
    assert len(set(answer)) == 2
    assert "GPU-3" in answer


NAMES = st.one_of(st.sampled_from([one.id for one in GPUS]), st.text(max_size=8))


@given(
    available=st.lists(NAMES, max_size=20),
    required=st.lists(NAMES, max_size=20),
    size=st.integers(-(2**31), 2**31 - 1),
)
def test_a_preferred_allocation_for_anything_at_all_is_answered(
    shared: Client, available: list[str], required: list[str], size: int
) -> None:
    answer = shared.preferred(available, required, size)
    assert len(answer) == max(0, min(size, len(set(available))))
    assert set(answer) <= set(available)


def test_a_choice_that_hangs_is_answered_with_any_valid_set() -> None:
    deadlines = replace(GENEROUS, choice_s=0.2)
    may_end = Event()

    def hanging(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        may_end.wait()
        return [*required, *available][:size]

    with serving(prefer=hanging, deadlines=deadlines) as served, capture_logs() as lines:
        answer = served.preferred(["GPU-0", "GPU-1", "GPU-2"], ["GPU-2"], 2)
        allocated = served.allocate(*answer)
        may_end.set()
        assert served.servicer.unchosen == 1
    assert answer == ("GPU-2", "GPU-0")
    assert len(allocated.container_responses) == 1
    assert "preferred allocation came too late" in [line["event"] for line in lines]


def test_a_question_to_the_kubelet_is_waited_for_beyond_the_deadline_of_a_choice() -> None:
    """Answered too early, the kubelet would serve the question within Allocate."""
    deadlines = replace(GENEROUS, choice_s=0.1)
    learned = list[int]()

    def ask(_available: Sequence[str], _required: Sequence[str], size: int) -> None:
        Event().wait(3 * deadlines.choice_s)
        learned.append(size)

    def prefer(available: Sequence[str], _required: Sequence[str], _size: int) -> Sequence[str]:
        return available[-learned[-1] :]

    with serving(prefer=InformedPrefer(ask, prefer), deadlines=deadlines) as served:
        assert served.preferred(["GPU-0", "GPU-1", "GPU-2"], [], 1) == ("GPU-2",)
        assert served.servicer.unchosen == 0


def _has_deadline(served: Client, seen: list[str], size: int) -> bool:
    """Ask for *size* devices; return whether they were chosen in a thread with a deadline."""
    assert len(served.preferred(["GPU-0", "GPU-1", "GPU-2"], [], size)) == size
    return seen[-1] == "deadline call"


def test_a_size_that_was_quick_has_no_deadline_until_the_next_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = list[str]()

    def prefer(available: Sequence[str], _required: Sequence[str], size: int) -> Sequence[str]:
        seen.append(current_thread().name)
        return available[:size]

    monkeypatch.setattr(service, "QUICK_S", PATIENCE_S)
    with serving(prefer=prefer) as served:
        found = [_has_deadline(served, seen, size) for size in (1, 1, 2, 2, 1)]
        assert found == [True, False, True, False, False]
        served.servicer.update(served.servicer.devices)  # what the choice needs may be others
        assert [_has_deadline(served, seen, 1) for _ in range(2)] == [True, False]
        monkeypatch.setattr(service, "QUICK_S", -1.0)  # none is quick
        assert [_has_deadline(served, seen, 1) for _ in range(3)] == [False, True, True]


def test_a_choice_that_began_before_a_list_makes_no_size_quick_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = list[str]()

    def prefer(available: Sequence[str], _required: Sequence[str], size: int) -> Sequence[str]:
        seen.append(current_thread().name)
        if len(seen) == 1:
            client.servicer.update(client.servicer.devices)
        return available[:size]

    monkeypatch.setattr(service, "QUICK_S", PATIENCE_S)
    with serving(prefer=prefer) as client:
        assert [_has_deadline(client, seen, 1) for _ in range(3)] == [True, True, False]
