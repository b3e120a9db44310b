"""What a pod holds at once equals the greediest of all moments of its life."""

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nodetopo.model.pod import Container, ContainerKind, Pod, at_once, started, summed

NAMES = ("cpu", "memory", "nvidia.com/gpu")
CONTAINERS = st.builds(
    Container,
    name=st.just("c"),
    kind=st.sampled_from(ContainerKind),
    requests=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)),
)
PODS = st.builds(
    Pod,
    namespace=st.just("n"),
    name=st.just("p"),
    containers=st.lists(CONTAINERS, max_size=6).map(tuple),
)


def asks(container: Container) -> dict[str, int]:
    return dict(container.requests or {})


def moments(pod: Pod) -> Iterator[tuple[Container, ...]]:
    """Yield which containers run side by side, from the pod's start to its end."""
    sidecars: tuple[Container, ...] = ()
    for one in pod.containers:
        if one.kind is ContainerKind.INIT:
            yield (*sidecars, one)
        elif one.kind is ContainerKind.SIDECAR:
            sidecars = (*sidecars, one)
            yield sidecars
    yield (*sidecars, *(one for one in pod.containers if one.kind is ContainerKind.APP))


@given(PODS)
def test_no_moment_holds_more_and_one_holds_as_much_of_each_resource(pod: Pod) -> None:
    named = {name for one in pod.containers for name in asks(one)}
    lives = list(moments(pod))
    expected = {
        name: max(sum(asks(one).get(name, 0) for one in running) for running in lives)
        for name in named
    }
    assert at_once(pod, asks) == expected


@given(PODS)
def test_app_containers_start_last_and_nothing_else_changes_places(pod: Pod) -> None:
    is_app = [one.kind is ContainerKind.APP for one in started(pod)]
    assert all(before <= after for before, after in pairwise(is_app))
    for wanted in (True, False):
        ours = [one for one in started(pod) if (one.kind is ContainerKind.APP) is wanted]
        theirs = [one for one in pod.containers if (one.kind is ContainerKind.APP) is wanted]
        assert [id(one) for one in ours] == [id(one) for one in theirs]


def test_amounts_of_both_are_added_and_a_resource_of_zero_stays() -> None:
    assert summed({"cpu": 1, "memory": 0}, {"cpu": 2, "gpu": 3}) == {
        "cpu": 3,
        "memory": 0,
        "gpu": 3,
    }
