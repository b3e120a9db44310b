"""What is known of the API server: its release, and fields of slices that it drops."""

from typing import Any

from nodetopo.components.dra.served_fields import ASK_AGAIN_S, FORGET_S, ServedFields
from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.slices import SliceWatch
from tests.components.dra.fake_slices import FakeSliceApi
from tests.components.dra.test_held import Clock

TAINTED = {"devices": [{"name": "a", "attributes": {}, "taints": [{"key": "k"}]}]}
PLAIN = {"devices": [{"name": "a", "attributes": {}}]}


def served(api: FakeSliceApi, clock: Clock) -> ServedFields:
    connected: Any = api
    return ServedFields(lambda: connected, clock)


def test_the_version_is_asked_for_once_a_connection() -> None:
    api, clock = FakeSliceApi(SliceWatch(None, "n")), Clock()
    found = served(api, clock)
    assert not found.is_answered
    for _ in range(3):
        found.keep_up(1)
    assert (found.version, found.release, api.versions_asked) == ("v1.36.3", (1, 36), 1)
    api.version = "v1.37.1"
    found.keep_up(2)
    assert (found.version, found.release, api.versions_asked) == ("v1.37.1", (1, 37), 2)


def test_a_refusal_is_an_answer_and_silence_is_none() -> None:
    api, clock = FakeSliceApi(SliceWatch(None, "n")), Clock()
    api.version = None
    found = served(api, clock)
    found.keep_up(1)
    assert (found.is_answered, found.release) == (True, None)

    def unreachable() -> Any:
        raise ApiUnavailable("no API server")

    silent = ServedFields(unreachable, clock)
    silent.keep_up(1)
    assert not silent.is_answered
    silent._connect = lambda: api  # type: ignore[assignment,return-value]
    silent.keep_up(1)
    assert not silent.is_answered, "not at every tick"
    clock.now += ASK_AGAIN_S
    silent.keep_up(1)
    assert silent.is_answered


def test_a_dropped_field_is_remembered_until_the_version_changes_or_for_hours() -> None:
    api, clock = FakeSliceApi(SliceWatch(None, "n")), Clock()
    found = served(api, clock)
    found.keep_up(1)
    assert found.untried(TAINTED)
    assert not found.untried(PLAIN)
    assert found.compare(TAINTED, PLAIN) == {"taints"}, "new"
    assert not found.compare(TAINTED, PLAIN), "known"
    assert found.dropped == {"taints"}
    found.keep_up(2)
    assert found.dropped == {"taints"}, "the same version"
    api.version = "v1.36.4"
    found.keep_up(3)
    assert found.dropped == set()
    found.compare(TAINTED, PLAIN)
    clock.now += FORGET_S
    found.keep_up(3)
    assert found.dropped == set()


def test_what_our_slices_have_is_kept_by_the_server() -> None:
    found = served(FakeSliceApi(SliceWatch(None, "n")), Clock())
    found.note([TAINTED])
    assert not found.untried(TAINTED)
    assert found.untried({"sharedCounters": [{"name": "gpus"}]})
