"""Whose a call of the kubelet is, by what it lists during the call."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from random import Random
from typing import TypeAlias
from unittest.mock import Mock

import pytest

from nodetopo.deviceplugin.service import Answers
from nodetopo.errors import UnreadableError
from nodetopo.kernel.requester import (
    DEADLINE_S,
    PAUSE,
    WINDOW_S,
    PodName,
    Requester,
    Requesters,
)
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.gate import AdmissionGate
from nodetopo.probes.kubelet.state import Records
from tests.listed_pods import listed_pod

GPU, HCA, OTHER = "nvidia.com/gpu", "rdma/hca", "example.com/fpga"

NO_ANSWERS = Mock(spec=Answers)

UNKNOWN = Requester()


Asker: TypeAlias = tuple[str, str]
"""The UID of a pod, and the name of a container."""


class Kubelet:
    """Pods and their devices, and one pod under admission at a time.

    It records what a container has once the next one asks, or :meth:`end` is called.
    """

    def __init__(self, *, has_checkpoint: bool = True) -> None:
        self.pods: dict[PodName, dict[str, dict[str, tuple[str, ...]]]] = {}
        self.uids: dict[str, str] = {}
        self.has_checkpoint = has_checkpoint
        self._asker: Asker | None = None
        self._begun: dict[Asker, dict[str, frozenset[str]]] = {}
        self._recorded: dict[Asker, dict[str, frozenset[str]]] = {}
        self.is_silent = False
        self.lists = 0
        self.takes_s = 0.0
        self.now_s = 0.0
        self._free = count()
        self.requesters = self.started()

    def started(self) -> Requesters:
        """Return what a new process has."""
        self.gate = AdmissionGate(lambda: self.now_s)
        self.requesters = Requesters(
            self.list, records=self.records, gate=self.gate, clock=lambda: self.now_s
        )
        for resource in (GPU, HCA):
            self.requesters.around(resource, lambda *_: (), NO_ANSWERS)
        self.requesters.need("test", is_needed=True)
        return self.requesters

    def list(self) -> Iterable[Pod]:
        """Answer as the kubelet's List does."""
        self.lists += 1
        self.now_s += self.takes_s
        if self.is_silent:
            raise UnreadableError("the kubelet is busy", "wait")
        return [listed_pod(*name, containers) for name, containers in self.pods.items()]

    def records(self) -> Records | None:
        """Return what the checkpoint has."""
        if not self.has_checkpoint:
            return None
        return frozenset(
            (uid, container, resource, ids)
            for (uid, container), held in self._recorded.items()
            for resource, ids in held.items()
        )

    def end(self) -> None:
        """Record the container that was given devices last: it has everything."""
        if self._asker is not None:
            self._recorded[self._asker] = self._begun[self._asker]
            self._asker = None

    def add(self, name: str, *containers: str) -> None:
        """Begin to admit a pod."""
        self.uids[name] = f"uid-{next(self._free)}"
        self.pods["default", name] = {container: {} for container in containers or ("work",)}

    def ask(self, pod: str, resource: str, container: str = "work", size: int = 1) -> Requester:
        """Choose and allocate for a container; return who was found."""
        if self._asker != (self.uids[pod], container):
            self.end()
        found = self.choose(resource, size)
        self.give(pod, resource, container, size)
        assert found is not None
        return found

    def choose(
        self, resource: str, size: int = 1, *, required: Sequence[str] = ()
    ) -> Requester | None:
        """Ask for a choice; return who was found."""
        with self.gate.choosing(is_reserved=bool(required), waits=Mock()):
            found = self.requesters.look(resource, required, size + len(required))
        assert self.requesters.current(resource) == found
        assert self.requesters.current("another") is None
        return found

    def give(
        self,
        pod: str,
        resource: str,
        container: str = "work",
        size: int = 1,
        ids: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """Give a container what was chosen, *ids* if any; one of init is not listed."""
        asker = self.uids[pod], container
        if self._asker != asker:
            self.end()
        ids = ids or self.fresh(resource, size)
        self.requesters.gave(resource, ids)
        self._asker = asker
        self._begun.setdefault(asker, {})[resource] = frozenset(ids)
        if container in self.pods["default", pod]:
            self.pods["default", pod][container][resource] = ids
        return ids

    def begun(self, pod: str, container: str) -> Mapping[str, frozenset[str]]:
        """Return the devices of a container, which may be one of init."""
        return self._begun.get((self.uids[pod], container), {})

    def fresh(self, resource: str, size: int) -> tuple[str, ...]:
        """Return devices that no container has."""
        return tuple(f"{resource}-{next(self._free)}" for _ in range(size))

    def held(self, pod: str, container: str = "work") -> Mapping[str, frozenset[str]]:
        """Return the devices of a container."""
        has = self.pods["default", pod][container]
        return {resource: frozenset(ids) for resource, ids in has.items()}


def primed(*, has_checkpoint: bool = True) -> Kubelet:
    """Return a kubelet without pods that has been listed."""
    found = Kubelet(has_checkpoint=has_checkpoint)
    found.requesters.prime(found.list)
    return found


@pytest.fixture(params=[True, False], ids=["checkpoint", "no-checkpoint"])
def kubelet(request: pytest.FixtureRequest) -> Kubelet:
    return primed(has_checkpoint=request.param)


def test_a_new_pod_has_nothing_and_is_found_by_what_it_got(kubelet: Kubelet) -> None:
    kubelet.add("a")
    first = kubelet.ask("a", GPU)
    assert (first.pod, first.container, first.held) == (("default", "a"), "work", {})
    second = kubelet.ask("a", HCA)
    assert (second.pod, second.held) == (("default", "a"), {GPU: kubelet.held("a")[GPU]})
    assert kubelet.requesters.lookups == Counter(known=2)


def test_a_pod_of_one_kind_is_not_taken_for_the_next_pod(kubelet: Kubelet) -> None:
    for name, resource in (("only-gpu", GPU), ("only-hca", HCA), ("again", GPU)):
        kubelet.add(name)
        found = kubelet.ask(name, resource)
        assert (found.pod, found.held) == (("default", name), {})


def test_pods_without_devices_that_came_between_leave_the_name_open(kubelet: Kubelet) -> None:
    kubelet.add("only-gpu")
    kubelet.ask("only-gpu", GPU)
    kubelet.add("web")
    kubelet.add("both")
    found = kubelet.ask("both", HCA)
    assert (found.pod, found.container, found.held) == (None, None, {})
    assert kubelet.ask("both", GPU).held == {HCA: kubelet.held("both")[HCA]}


def test_containers_get_their_own_in_the_order_of_the_spec(kubelet: Kubelet) -> None:
    kubelet.add("a", "work", "second")
    assert kubelet.ask("a", GPU).held == {}
    assert kubelet.ask("a", HCA).held.keys() == {GPU}
    later = kubelet.ask("a", HCA, "second")
    assert (later.container, later.held) == ("second", {})
    assert later.beside == kubelet.held("a")
    assert kubelet.ask("a", GPU, "second").held == {HCA: kubelet.held("a", "second")[HCA]}


def test_a_sidecar_is_listed_before_the_containers(kubelet: Kubelet) -> None:
    kubelet.add("a", "sidecar", "work")
    kubelet.ask("a", HCA, "sidecar")
    assert kubelet.choose(HCA) is not None
    found = kubelet.ask("a", HCA, "work")
    assert (found.container, found.held) == ("work", {})
    assert kubelet.ask("a", GPU, "work").held == {HCA: kubelet.held("a")[HCA]}


def test_a_list_in_a_call_with_reserved_devices_is_not_made(kubelet: Kubelet) -> None:
    kubelet.add("a")
    before = kubelet.lists
    assert kubelet.requesters.look(GPU, ["reserved"], 2) == UNKNOWN
    assert kubelet.lists == before


def test_nobody_is_looked_up_where_nobody_needs_it(kubelet: Kubelet) -> None:
    kubelet.requesters.need("test", is_needed=False)
    before = kubelet.lists
    kubelet.add("a")
    assert kubelet.choose(GPU) is None
    assert (kubelet.lists, kubelet.requesters.lookups) == (before, Counter())


def test_nothing_is_listed_while_an_allocation_is_under_way(kubelet: Kubelet) -> None:
    kubelet.add("a")
    before = kubelet.lists
    with kubelet.gate.allocating():
        assert kubelet.choose(GPU) == UNKNOWN
    assert (kubelet.lists, kubelet.requesters.lookups) == (before, Counter(failed=1))
    assert kubelet.choose(GPU) != UNKNOWN


def test_a_slow_list_is_used_and_no_other_follows_until_the_kubelet_has_recovered(
    kubelet: Kubelet,
) -> None:
    kubelet.add("a")
    kubelet.takes_s = DEADLINE_S + 1
    assert kubelet.ask("a", GPU).held == {}
    kubelet.takes_s = 0.0
    before = kubelet.lists
    kubelet.choose(HCA)
    assert (kubelet.lists, kubelet.requesters.lookups) == (before, Counter(known=1, failed=1))
    kubelet.now_s += PAUSE * (DEADLINE_S + 1)
    found = kubelet.choose(HCA)
    assert found is not None
    assert found.held == kubelet.held("a")
    assert kubelet.lists == before + 1


def test_a_kubelet_that_does_not_answer_leaves_only_the_last_container(kubelet: Kubelet) -> None:
    kubelet.add("a")
    kubelet.ask("a", GPU)
    kubelet.is_silent = True
    kubelet.now_s += WINDOW_S
    found = kubelet.choose(HCA)
    assert found is not None
    assert found.held == kubelet.held("a")
    kubelet.give("a", HCA)
    assert kubelet.choose(GPU) == UNKNOWN
    kubelet.is_silent = False
    kubelet.add("b")
    assert kubelet.ask("b", HCA).held == {}
    assert kubelet.ask("b", GPU).held == {HCA: kubelet.held("b")[HCA]}


def test_a_pod_that_was_never_asked_about_is_found_by_its_grant(kubelet: Kubelet) -> None:
    """The kubelet does not ask where it has no choice."""
    kubelet.add("a")
    kubelet.give("a", GPU)
    assert kubelet.ask("a", HCA).held == {GPU: kubelet.held("a")[GPU]}


def test_of_two_new_pods_one_of_which_has_devices_the_checkpoint_tells_the_one_that_asks(
    kubelet: Kubelet,
) -> None:
    kubelet.add("a")
    kubelet.give("a", GPU)
    kubelet.add("b")
    found = kubelet.choose(HCA)
    assert found is not None
    assert found.pod == (("default", "a") if kubelet.has_checkpoint else None)
    kubelet.end()  # the other was listed before, and asked for nothing
    assert kubelet.choose(HCA) == UNKNOWN


def test_a_kubelet_that_does_not_answer_is_taken_at_its_word_for_two_seconds() -> None:
    kubelet = primed(has_checkpoint=False)
    kubelet.add("a")
    kubelet.ask("a", GPU)
    kubelet.is_silent = True
    kubelet.now_s += WINDOW_S + 0.1
    assert kubelet.choose(HCA) == UNKNOWN


def test_what_an_init_container_got_is_known_in_its_second_call(kubelet: Kubelet) -> None:
    kubelet.add("a")
    assert kubelet.choose(GPU) is not None
    ids = kubelet.give("a", GPU, "init")
    found = kubelet.choose(HCA)
    assert found == Requester(pod=("default", "a"), held={GPU: frozenset(ids)})


@pytest.mark.parametrize("resource", [GPU, HCA])
def test_what_an_init_container_left_is_its_pods(resource: str) -> None:
    kubelet = primed()
    kubelet.add("a")
    kubelet.choose(HCA)
    left = kubelet.give("a", HCA, "init")
    kubelet.end()
    found = kubelet.choose(resource, required=left if resource == HCA else ())
    assert found is not None
    assert (found.pod, found.held) == (("default", "a"), {})
    assert found.spare == {HCA: frozenset(left)}
    kubelet.give("a", resource, "work", ids=left if resource == HCA else ())
    other = GPU if resource == HCA else HCA
    found = kubelet.choose(other, required=left if other == HCA else ())
    assert found is not None
    assert (found.pod, found.held) == (("default", "a"), kubelet.held("a"))


def test_devices_that_only_an_init_container_has_are_in_use(kubelet: Kubelet) -> None:
    kubelet.add("a")
    kubelet.choose(HCA)
    only = kubelet.give("a", HCA, "init")
    kubelet.ask("a", GPU)
    kubelet.add("b")
    kubelet.ask("b", GPU)
    in_use = kubelet.requesters.in_use
    assert in_use.get(HCA) == (frozenset(only) if kubelet.has_checkpoint else None)
    kubelet.requesters.look(HCA, (), 1, only)  # offered again
    assert not kubelet.requesters.in_use.get(HCA)


def test_the_checkpoint_tells_the_next_container_from_the_same_one() -> None:
    """A helper has HCAs, and the trainer asks for GPUs first."""
    kubelet = primed()
    kubelet.add("a", "helper", "work")
    kubelet.ask("a", HCA, "helper")
    found = kubelet.ask("a", GPU, "work")
    assert (found.pod, found.container, found.held) == (("default", "a"), "work", {})
    assert found.beside == kubelet.held("a", "helper")
    assert kubelet.ask("a", HCA, "work").held == {GPU: kubelet.held("a")[GPU]}


def test_a_new_process_finds_the_container_that_has_a_part(kubelet: Kubelet) -> None:
    kubelet.add("web")
    kubelet.add("a")
    kubelet.ask("a", GPU)
    after = kubelet.started()
    after.prime(kubelet.list)
    assert kubelet.ask("a", HCA).held == {GPU: kubelet.held("a")[GPU]}


def test_a_new_process_does_not_choose_between_two(kubelet: Kubelet) -> None:
    for name in ("a", "b"):
        kubelet.add(name)
        kubelet.ask(name, GPU)
    kubelet.started().prime(kubelet.list)
    found = kubelet.choose(HCA)
    assert found is not None
    assert found.pod == (("default", "b") if kubelet.has_checkpoint else None)
    kubelet.add("c")
    assert kubelet.ask("c", HCA).held == {}


def test_a_process_that_has_seen_no_list_yet_guesses_nothing(kubelet: Kubelet) -> None:
    kubelet.add("a")
    kubelet.ask("a", GPU)
    kubelet.end()
    kubelet.started()
    kubelet.add("b")
    assert kubelet.choose(HCA) == UNKNOWN
    kubelet.give("b", HCA)
    assert kubelet.ask("b", GPU).held == {HCA: kubelet.held("b")[HCA]}


def test_a_kubelet_that_starts_again_lists_its_pods_one_by_one() -> None:
    kubelet = primed()
    for name in ("a", "b"):
        kubelet.add(name)
        kubelet.ask(name, GPU)
    before, kubelet.pods = kubelet.pods, {}
    kubelet.pods["default", "a"] = before["default", "a"]
    kubelet.add("c")
    assert kubelet.ask("c", GPU).pod == ("default", "c")
    kubelet.pods["default", "b"] = before["default", "b"]  # has what it had: it is not new
    found = kubelet.ask("c", HCA)
    assert (found.pod, found.held) == (("default", "c"), {GPU: kubelet.held("c")[GPU]})


@pytest.mark.parametrize("order", [(GPU,), (HCA,), (GPU, HCA), (HCA, GPU)], ids="-".join)
@pytest.mark.parametrize("again", [(GPU,), (HCA,), (GPU, HCA), (HCA, GPU)], ids="-".join)
@pytest.mark.parametrize("init", [(), (GPU,), (GPU, HCA)], ids="-".join)
@pytest.mark.parametrize("is_same", [True, False], ids=["same devices", "others"])
def test_a_pod_that_comes_back_under_its_name_is_found_each_time(
    order: Sequence[str], again: Sequence[str], init: Sequence[str], *, is_same: bool
) -> None:
    """Nothing comes between; after the first time with containers of other kinds."""
    kubelet, before = primed(), dict[tuple[str, str], tuple[str, ...]]()
    for kinds in (order, again, again):
        kubelet.add("web-0")
        given = dict[tuple[str, str], tuple[str, ...]]()
        for container, wanted in (("init", init), ("work", kinds)):
            kubelet.end()
            for number, resource in enumerate(wanted):
                left = given.get(("init", resource), ())
                found = kubelet.choose(resource, required=left)
                assert found is not None
                assert found.pod == ("default", "web-0"), (container, resource)
                own = kubelet.held("web-0") if container == "work" else None
                assert found.held.keys() == {*wanted[:number]}
                assert own is None or found.held == own
                ids = left or (before.get((container, resource), ()) if is_same else ())
                given[container, resource] = kubelet.give("web-0", resource, container, ids=ids)
        before = given


@pytest.mark.parametrize("kind", [GPU, HCA])
def test_a_pod_of_one_kind_comes_back_without_a_checkpoint(kind: str) -> None:
    kubelet = primed(has_checkpoint=False)
    for _ in range(4):
        kubelet.add("web-0")
        found = kubelet.ask("web-0", kind, size=2)
        assert (found.pod, found.held) == (("default", "web-0"), {})
    assert kubelet.requesters.lookups == Counter(known=4)


def test_a_pod_comes_back_after_the_process_began_again(kubelet: Kubelet) -> None:
    kubelet.add("web-0")
    kubelet.ask("web-0", GPU)
    kubelet.end()
    kubelet.started().prime(kubelet.list)
    for _ in range(3):
        kubelet.add("web-0")
        assert kubelet.ask("web-0", GPU).pod == ("default", "web-0")


def test_a_pod_comes_back_while_the_other_of_its_name_is_listed(kubelet: Kubelet) -> None:
    kubelet.add("web-0")
    kubelet.ask("web-0", GPU)
    kubelet.end()
    ending = listed_pod("default", "web-0", kubelet.pods["default", "web-0"])
    listed = kubelet.list
    for pods in (lambda: [ending, *listed()], lambda: [*listed(), ending]):
        kubelet.add("web-0")
        kubelet.requesters._pods = pods
        assert kubelet.ask("web-0", GPU).pod == ("default", "web-0")


def test_another_uid_is_another_pod(kubelet: Kubelet) -> None:
    """Which had no devices, and leaves no other trace; the last grant is another pod's."""
    kubelet.requesters.uid = lambda name: kubelet.uids.get(name[1])
    kubelet.add("web")
    kubelet.add("a", "work", "log")
    kubelet.ask("a", GPU)
    kubelet.add("web")
    found = kubelet.choose(GPU)
    assert found is not None
    assert found.pod == ("default", "web")


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_pod_that_was_refused_between_two_calls_does_not_ask(*, is_listed: bool) -> None:
    """The kubelet frees its devices, and never records them."""
    kubelet = primed()
    kubelet.add("refused")
    kubelet.ask("refused", GPU)
    del kubelet.pods["default", "refused"]
    if is_listed:
        kubelet.add("next")
        found = kubelet.choose(HCA)
        assert found is not None
        assert (found.pod, found.held) == (("default", "next"), {})
    else:
        kubelet.is_silent = True
        assert kubelet.choose(GPU) == UNKNOWN


def test_a_pod_of_the_same_name_without_its_devices_is_another(kubelet: Kubelet) -> None:
    kubelet.add("web-0")
    kubelet.ask("web-0", GPU)
    kubelet.ask("web-0", HCA)
    kubelet.add("only-gpu")
    kubelet.ask("only-gpu", GPU)
    kubelet.add("web-0")
    found = kubelet.ask("web-0", HCA)
    assert (found.pod, found.held) == (("default", "web-0"), {})


def test_specs_name_the_pod_among_new_ones(kubelet: Kubelet) -> None:
    specs: dict[PodName, dict[str, int]] = {
        ("default", "web"): {},
        ("default", "a"): {GPU: 2, HCA: 2},
    }
    kubelet.requesters.requests = lambda pod, _: specs.get(pod)
    kubelet.add("web")
    kubelet.add("a")
    found = kubelet.ask("a", GPU, size=2)
    assert (found.pod, found.container, found.requests) == (
        ("default", "a"),
        "work",
        {GPU: 2, HCA: 2},
    )


def test_specs_tell_a_containers_second_kind_from_the_next_containers_first(
    kubelet: Kubelet,
) -> None:
    specs = {"work": {GPU: 1}, "storage": {HCA: 1}}
    kubelet.requesters.requests = lambda _, container: specs[container]
    kubelet.add("a", "work", "storage")
    kubelet.ask("a", GPU, "work")
    found = kubelet.ask("a", HCA, "storage")
    assert (found.container, found.held) == ("storage", {})


def test_a_spec_that_asks_for_none_of_it_excludes_the_container(kubelet: Kubelet) -> None:
    kubelet.add("a")
    kubelet.ask("a", GPU)
    kubelet.requesters.requests = lambda *_: {GPU: 1}
    assert kubelet.choose(HCA) == UNKNOWN


def test_devices_of_others_count_as_in_use(kubelet: Kubelet) -> None:
    kubelet.add("theirs")
    kubelet.pods["default", "theirs"]["work"][OTHER] = ("card-0",)
    kubelet.add("a")
    kubelet.ask("a", GPU)
    in_use = kubelet.requesters.in_use
    assert in_use == {OTHER: frozenset({"card-0"}), **kubelet.held("a")}


def test_devices_of_an_ended_pod_are_free_as_soon_as_another_gets_the_first_of_them(
    kubelet: Kubelet,
) -> None:
    """The kubelet drops the ended pod from its checkpoint only once the next one is complete."""
    kubelet.add("ended")
    kubelet.ask("ended", GPU, size=4)
    kubelet.ask("ended", HCA)
    (free,) = kubelet.held("ended")[HCA]
    kubelet.end()
    del kubelet.pods["default", "ended"]
    kubelet.add("next")
    kubelet.choose(HCA)
    kubelet.give("next", HCA, ids=(free,))
    kubelet.choose(GPU)
    assert kubelet.requesters.in_use == {HCA: frozenset({free})}


@pytest.mark.parametrize("order", [1, -1])
def test_devices_of_a_pod_that_is_ending_beside_one_of_its_name_are_in_use(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    pods = [
        listed_pod("default", "a", {"work": {GPU: ("gpu",)}}),
        listed_pod("default", "a", {"work": {}}),
    ]
    monkeypatch.setattr(kubelet.requesters, "_pods", lambda: pods[::order])
    kubelet.add("a")
    kubelet.choose(HCA)
    assert kubelet.requesters.in_use == {GPU: frozenset({"gpu"})}


class Cluster:
    """Random pods of one node, which come, are refused, end, and come back under their names.

    The API server has their UIDs, but not what they ask for.
    """

    NAMES = ("a", "b", "c")

    def __init__(self, seed: int, *, has_checkpoint: bool) -> None:
        self.random = Random(seed)
        self.kubelet = primed(has_checkpoint=has_checkpoint)
        self.known = self.asked = 0
        self.start()

    def start(self) -> None:
        """Start another process."""
        requesters = self.kubelet.started()
        requesters.uid = lambda name: self.kubelet.uids.get(name[1])
        requesters.prime(self.kubelet.list)

    def admit(self) -> None:
        """Admit a pod of up to two init containers and up to three others."""
        kubelet, name = self.kubelet, self.random.choice(self.NAMES)
        kubelet.end()
        kubelet.now_s += 2 * WINDOW_S
        inits = [f"init-{at}" for at in range(self.random.choice((0, 0, 1, 2)))]
        apps = [f"work-{at}" for at in range(self.random.randint(1, 3))]
        kubelet.add(name, *apps)
        left: dict[str, set[str]] = {}
        for container in (*inits, *apps):
            kubelet.end()
            for resource in self.random.sample((GPU, HCA), self.random.choice((0, 1, 1, 2, 2))):
                if self.random.random() < 0.03:
                    del kubelet.pods["default", name]  # refused
                    return
                self.allocate(name, container, resource, left)
            if self.random.random() < 0.05:
                self.start()

    def allocate(self, name: str, container: str, resource: str, left: dict[str, set[str]]) -> None:
        """Allocate as the kubelet does, and check who was found."""
        kubelet, size = self.kubelet, self.random.randint(1, 3)
        reused = sorted(left.get(resource, ()))
        ids = tuple(reused[:size])
        own = kubelet.held(name, container) if container.startswith("work") else None
        if len(ids) < size:
            is_asked, kubelet.is_silent = self.random.random() < 0.9, self.random.random() < 0.05
            found = kubelet.choose(resource, size - len(ids), required=ids) if is_asked else None
            kubelet.is_silent = False
            if found is not None:
                self.check(found, name, container, own)
            ids = (*ids, *kubelet.fresh(resource, size - len(ids)))
        kubelet.give(name, resource, container, ids=ids)
        if own is None:
            left.setdefault(resource, set()).update(ids)
        else:
            left.get(resource, set()).difference_update(ids)

    def check(
        self, found: Requester, name: str, container: str, own: Mapping[str, frozenset[str]] | None
    ) -> None:
        """Check that no other pod and no other container was named."""
        assert found.pod in (None, ("default", name))
        if own is not None:
            assert found.container in (None, container)
        if found.pod is not None:
            assert found.held == (self.kubelet.begun(name, container) if own is None else own)
        self.known += found.pod is not None
        self.asked += 1

    def end(self) -> None:
        """End a pod that runs."""
        if self.kubelet.pods:
            self.kubelet.end()
            del self.kubelet.pods[self.random.choice(sorted(self.kubelet.pods))]


@pytest.mark.parametrize("seed", range(60))
def test_no_other_pod_and_no_other_container_is_ever_named(seed: int) -> None:
    cluster = Cluster(seed, has_checkpoint=True)
    for _ in range(60):
        cluster.admit() if cluster.random.random() < 0.6 else cluster.end()
    assert cluster.known > cluster.asked / 2


def test_what_an_unknown_pod_was_given_is_nobodys_after_seconds() -> None:
    """It was refused, perhaps: the next pod, whenever it comes, has nothing of it."""
    node = Kubelet()
    node.requesters.prime(list)
    node.add("refused")
    node.give("refused", GPU)
    del node.pods["default", "refused"]
    node._asker = None
    node.now_s += WINDOW_S + 1
    node.add("next")
    found = node.choose(HCA)
    assert found is not None
    assert not found.held


def test_a_pod_that_is_refused_and_made_again_has_nothing_of_its_predecessor() -> None:
    node = Kubelet()
    uid = ["uid-1"]
    node.requesters.uid = lambda _: uid[0]
    node.requesters.prime(list)
    node.add("web-0")
    node.choose(HCA)
    node.requesters.gave(HCA, ["h0"])
    uid[0] = "uid-2"
    found = node.choose(GPU)
    assert found is not None
    assert not found.held


def test_a_refused_allocation_ends_the_call_and_its_container() -> None:
    node = Kubelet()
    failing = Mock(spec=Answers)
    failing.answer.side_effect = UnreadableError("no device node", "load the driver")
    _, answers = node.requesters.around(HCA, lambda *_: (), failing)
    node.add("pod")
    node.ask("pod", GPU)
    node.choose(HCA)
    with pytest.raises(UnreadableError):
        answers.answer([Mock(id="h0")])
    assert node.requesters.current(HCA) is None


def test_an_allocation_without_a_choice_is_no_completed_containers() -> None:
    node = Kubelet()
    seen: list[Requester | None] = []
    noting = Mock(spec=Answers)
    noting.answer.side_effect = lambda _: seen.append(node.requesters.current(HCA))
    _, answers = node.requesters.around(HCA, lambda *_: (), noting)
    node.add("first")
    node.ask("first", GPU)
    node.end()
    node.add("second")
    answers.answer([Mock(id="h0")])
    assert seen == [None]
