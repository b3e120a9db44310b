"""Whose a call of the kubelet is, by what it lists during the call."""

from collections.abc import Iterable, Mapping
from unittest.mock import Mock

import pytest

from nodetopo.deviceplugin.service import Answers
from nodetopo.errors import UnreadableError
from nodetopo.kernel.requester import DEADLINE_S, PAUSE, Lookups, PodName, Requester, Requesters
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.gate import AdmissionGate
from tests.listed_pods import listed_pod

GPU, HCA, OTHER = "nvidia.com/gpu", "rdma/hca", "example.com/fpga"

NO_ANSWERS = Mock(spec=Answers)


class Kubelet:
    """Pods and their devices, and one pod under admission at a time."""

    def __init__(self) -> None:
        self.pods: dict[PodName, dict[str, dict[str, tuple[str, ...]]]] = {}
        self.is_silent = False
        self.lists = 0
        self.takes_s = 0.0
        self.now_s = 0.0
        self._free = iter(range(1000))
        self.requesters = self.started()

    def started(self) -> Requesters:
        """Return what a new process has."""
        self.gate = AdmissionGate(lambda: self.now_s)
        self.requesters = Requesters(self.list, gate=self.gate, clock=lambda: self.now_s)
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

    def add(self, name: str, *containers: str) -> None:
        """Begin to admit a pod."""
        self.pods["default", name] = {container: {} for container in containers or ("work",)}

    def ask(self, pod: str, resource: str, container: str = "work", size: int = 1) -> Requester:
        """Choose and allocate for a container; return who was found."""
        found = self.choose(resource, size)
        self.give(pod, resource, container, size)
        assert found is not None
        return found

    def choose(self, resource: str, size: int = 1) -> Requester | None:
        """Ask for a choice; return who was found."""
        with self.gate.choosing(is_reserved=False, waits=Mock()):
            found = self.requesters.look(resource, (), size)
        assert self.requesters.current(resource) == found
        assert self.requesters.current("another") is None
        return found

    def give(self, pod: str, resource: str, container: str = "work", size: int = 1) -> None:
        """Give a container what was chosen."""
        ids = tuple(f"{resource}-{next(self._free)}" for _ in range(size))
        self.requesters.gave(resource, ids)
        self.pods["default", pod][container][resource] = ids

    def held(self, pod: str, container: str = "work") -> Mapping[str, frozenset[str]]:
        """Return the devices of a container."""
        has = self.pods["default", pod][container]
        return {resource: frozenset(ids) for resource, ids in has.items()}


@pytest.fixture
def kubelet() -> Kubelet:
    found = Kubelet()
    found.requesters.prime(found.list)
    return found


def test_a_new_pod_has_nothing_and_is_found_by_what_it_got(kubelet: Kubelet) -> None:
    kubelet.add("a")
    first = kubelet.ask("a", GPU)
    assert (first.pod, first.container, first.held) == (("default", "a"), "work", {})
    second = kubelet.ask("a", HCA)
    assert (second.pod, second.held) == (("default", "a"), {GPU: kubelet.held("a")[GPU]})
    assert kubelet.requesters.lookups == Lookups(known=2)


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
    assert kubelet.requesters.look(GPU, ["reserved"], 2) is None
    assert kubelet.lists == before


def test_nobody_is_looked_up_where_nobody_needs_it(kubelet: Kubelet) -> None:
    kubelet.requesters.need("test", is_needed=False)
    before = kubelet.lists
    kubelet.add("a")
    assert kubelet.choose(GPU) is None
    assert (kubelet.lists, kubelet.requesters.lookups) == (before, Lookups())


def test_nothing_is_listed_while_an_allocation_is_under_way(kubelet: Kubelet) -> None:
    kubelet.add("a")
    before = kubelet.lists
    with kubelet.gate.allocating():
        assert kubelet.choose(GPU) is None
    assert (kubelet.lists, kubelet.requesters.lookups) == (before, Lookups(failed=1))
    assert kubelet.choose(GPU) is not None


def test_a_slow_list_is_used_and_no_other_follows_until_the_kubelet_has_recovered(
    kubelet: Kubelet,
) -> None:
    kubelet.add("a")
    kubelet.takes_s = DEADLINE_S + 1
    assert kubelet.ask("a", GPU).held == {}
    kubelet.takes_s = 0.0
    before = kubelet.lists
    assert kubelet.choose(HCA) is None
    assert (kubelet.lists, kubelet.requesters.in_use) == (before, None)
    kubelet.now_s += PAUSE * (DEADLINE_S + 1)
    found = kubelet.choose(HCA)
    assert found is not None
    assert found.held == kubelet.held("a")


def test_a_kubelet_that_does_not_answer_leaves_the_container_unknown(kubelet: Kubelet) -> None:
    kubelet.add("a")
    kubelet.ask("a", GPU)
    kubelet.is_silent = True
    assert (kubelet.choose(HCA), kubelet.requesters.in_use) == (None, None)
    kubelet.give("a", HCA)
    kubelet.is_silent = False
    kubelet.add("b")
    assert kubelet.ask("b", HCA).held == {}
    assert kubelet.ask("b", GPU).held == {HCA: kubelet.held("b")[HCA]}


def test_a_pod_that_was_never_asked_about_is_found_by_its_grant(kubelet: Kubelet) -> None:
    """The kubelet does not ask where it has no choice."""
    kubelet.add("a")
    kubelet.give("a", GPU)
    assert kubelet.ask("a", HCA).held == {GPU: kubelet.held("a")[GPU]}


def test_of_two_new_pods_one_of_which_has_devices_none_is_found(kubelet: Kubelet) -> None:
    kubelet.add("a")
    kubelet.give("a", GPU)
    kubelet.add("b")
    assert kubelet.choose(HCA) is None
    assert kubelet.requesters.lookups == Lookups(ambiguous=1)


def test_what_an_init_container_got_is_not_listed(kubelet: Kubelet) -> None:
    kubelet.add("a")
    assert kubelet.choose(GPU) is not None
    kubelet.requesters.gave(GPU, ["of the init container"])
    assert kubelet.choose(HCA) is None


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
    assert kubelet.choose(HCA) is None
    kubelet.add("c")
    assert kubelet.ask("c", HCA).held == {}


def test_a_process_that_has_seen_no_list_yet_guesses_nothing(kubelet: Kubelet) -> None:
    kubelet.add("a")
    kubelet.ask("a", GPU)
    kubelet.started()
    kubelet.add("b")
    assert kubelet.choose(HCA) is None
    kubelet.give("b", HCA)
    assert kubelet.ask("b", GPU).held == {HCA: kubelet.held("b")[HCA]}


def test_a_kubelet_that_starts_again_lists_its_pods_one_by_one(kubelet: Kubelet) -> None:
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
    assert kubelet.choose(HCA) is None


def test_devices_of_others_count_as_in_use(kubelet: Kubelet) -> None:
    kubelet.add("theirs")
    kubelet.pods["default", "theirs"]["work"][OTHER] = ("card-0",)
    kubelet.add("a")
    kubelet.ask("a", GPU)
    in_use = kubelet.requesters.in_use
    assert in_use == {OTHER: frozenset({"card-0"}), **kubelet.held("a")}
