"""Which requests of the kubelet are taken for one container's, and how that is verified."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from nodetopo.allocation.rules import Model, Policy
from nodetopo.components.gpus.own_pods import PodChoice
from nodetopo.components.gpus.placement import Placement
from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.components.rdma.resources import RdmaResource, key_of, offer_hcas, token_of
from nodetopo.deviceplugin.service import Answers
from nodetopo.kernel.requester import WINDOW_S, Requesters
from nodetopo.model.codec import decode
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.gate import AdmissionGate
from nodetopo.probes.kubelet.state import Record
from nodetopo.rdma.identity import remembered_hcas
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.pools import Pool, SharingMode
from tests.deviceplugin.machines import whole
from tests.listed_pods import listed_pod

NODES = Path(__file__).parents[2] / "nodes"
HGX = decode((NODES / "h100x8-nvswitch-2numa-8cx7" / "snapshot.json").read_text("utf-8")).snapshot
GPU, HCA = "nvidia.com/gpu", "rdma/a"
GPUS = [gpu.id for gpu in HGX.gpus]


def first(
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    *,
    taken_hcas: frozenset[str] | None = None,
) -> Sequence[str]:
    del taken_hcas
    return [*required, *(name for name in available if name not in required)][:size]


class Admissions:
    """What one kubelet asks for and gives, by positions of GPUs and HCAs."""

    def __init__(self, most: int = 32) -> None:
        self.now = 0.0
        self.requesters = Requesters(clock=lambda: self.now)
        self.joint = JointPlacement(self.requesters)
        known = remembered_hcas((), HGX)
        pool = Pool(resource=HCA, most=most, mode=SharingMode.CHOSEN)
        (self.pool,) = offer_hcas(HGX, known, [pool]).resources
        self.keys = [one.key for one in known]
        self.joint.take(
            Pairing(snapshot=HGX),
            {name: at for at, name in enumerate(GPUS)},
            {key: at for at, key in enumerate(self.keys)},
        )
        self.joint.expect(GPUS, first)
        self.joint.offer([self.pool])
        self.follow = self.joint.following(GPU, lambda: dict(zip(GPUS, GPUS, strict=True)), first)
        self.free_gpus, self.free = list(GPUS), [device.id for device in self.pool.devices]
        self.containers: list[set[tuple[str, str]]] = []

    def gpus(self, size: int, within: Sequence[int] = range(8)) -> list[int]:
        """Choose GPUs and give them."""
        offered = [name for name in self.free_gpus if GPUS.index(name) in within]
        self.requesters.look(GPU, (), size, offered)
        chosen = list(self.follow(offered, (), size))
        assert len(chosen) == size
        assert set(chosen) <= set(offered)
        self.free_gpus = [name for name in self.free_gpus if name not in chosen]
        self.requesters.gave(GPU, chosen)
        return [GPUS.index(name) for name in chosen]

    def hcas(self, size: int, within: Sequence[int] = range(8)) -> list[int]:
        """Choose HCAs and give them."""
        offered = [name for name in self.free if self.keys.index(key_of(name)) in within]
        self.requesters.look(HCA, (), size, offered)
        chosen = self.joint.hcas_for(self.pool, offered, (), size)
        assert len(set(chosen)) == size
        assert set(chosen) <= set(offered)
        self.free = [name for name in self.free if name not in chosen]
        self.requesters.gave(HCA, chosen)
        return [self.keys.index(key_of(name)) for name in chosen]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_containers_one_after_the_other_get_their_own(size: int) -> None:
    node = Admissions()
    for number in range(8 // size):
        if number % 2:
            assert sorted(node.hcas(size)) == sorted(node.gpus(size))
        else:
            assert sorted(node.gpus(size)) == sorted(node.hcas(size))


def test_two_pools_of_one_container_follow_the_same_gpus() -> None:
    node = Admissions()
    node.gpus(2, within=(5, 6))
    assert sorted(node.hcas(2)) == [5, 6]
    other = RdmaResource(
        pool=Pool(resource="rdma/b", most=8, mode=SharingMode.CHOSEN),
        devices=node.pool.devices,
        hcas=node.pool.hcas,
        positions=node.pool.positions,
        tokens=node.pool.tokens,
    )
    chosen = node.joint.hcas_for(other, node.free, (), 2)
    assert sorted(node.keys.index(key_of(name)) for name in chosen) == [5, 6]


def test_gpus_follow_two_pools_of_one_container() -> None:
    node = Admissions()
    second = replace(node.pool, pool=replace(node.pool.pool, resource="rdma/b"))
    node.joint.offer([node.pool, second])
    node.requesters.gave("rdma/a", [f"{node.keys[6]}::0"])
    node.requesters.gave("rdma/b", [f"{node.keys[7]}::0"])
    assert sorted(node.gpus(2)) == [6, 7]


def test_a_second_container_does_not_follow_what_the_first_one_got() -> None:
    node = Admissions()
    assert node.gpus(2, within=(0, 1)) == [0, 1]
    assert sorted(node.hcas(2)) == [0, 1]
    # HCAs first: those of the GPUs that come next, and not those of the first container.
    assert sorted(node.hcas(2)) == [2, 3]
    assert sorted(node.gpus(2)) == [2, 3]


def test_only_the_latest_of_a_resource_can_be_the_same_containers() -> None:
    node = Admissions()
    node.gpus(1, within=(7,))  # of a container that wants no HCA
    node.gpus(1, within=(2,))
    assert node.hcas(1) == [2]
    assert node.joint.gpus(HCA) == ()


def test_after_the_window_nothing_is_followed() -> None:
    node = Admissions()
    node.gpus(1, within=(7,))
    node.now += WINDOW_S + 0.01
    assert node.joint.gpus(HCA) == ()
    assert node.hcas(1) == [0]


def test_the_kubelets_numa_node_comes_first() -> None:
    node = Admissions()
    assert sorted(node.hcas(2, within=range(4, 8))) == [4, 5]
    assert sorted(node.gpus(2, within=range(4))) == [0, 1]


def test_hcas_asked_for_first_expect_gpus_of_the_same_numa_node() -> None:
    node = Admissions()
    assert sorted(node.hcas(4, within=range(4, 8))) == [4, 5, 6, 7]
    assert sorted(node.gpus(4)) == [4, 5, 6, 7]


def test_gpus_in_use_are_not_expected() -> None:
    node = Admissions()
    node.gpus(3)
    node.hcas(3)
    node.now += 10
    assert sorted(node.hcas(2)) == [3, 4]


def test_more_devices_than_hcas_are_tokens_of_all() -> None:
    node = Admissions()
    got = node.hcas(12)
    assert {got.count(position) for position in range(8)} == {1, 2}


def test_the_lowest_free_tokens_of_each_hca_are_taken() -> None:
    node, random = Admissions(most=800), Random(1)
    for _ in range(20):
        offered = random.sample(node.free, 300)
        lowest = {
            key: sorted((name for name in offered if key_of(name) == key), key=token_of)
            for key in node.keys
        }
        chosen = node.joint.hcas_for(node.pool, offered, (), 24)
        for key, own in lowest.items():
            taken = [name for name in chosen if key_of(name) == key]
            assert taken == own[: len(taken)]
        assert {key_of(name) for name in chosen} == {*node.keys}


def test_a_request_looks_at_no_token_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Admissions(most=8000)
    alone: list[str] = []
    for name in ("key_of", "token_of"):
        monkeypatch.setattr(f"nodetopo.components.rdma.joint.{name}", alone.append)
    for size in (1, 8):
        assert len(node.joint.hcas_for(node.pool, node.free, (), size)) == size
    assert alone == []


def test_devices_of_an_earlier_list_are_taken_after_the_own_ones() -> None:
    node = Admissions(most=8)
    only = node.keys[3]
    offered = [f"{only}::{number}" for number in (11, 7, 0, 9)]
    chosen = node.joint.hcas_for(node.pool, offered, (), 3)
    assert chosen == (f"{only}::0", f"{only}::7", f"{only}::9")


def test_required_devices_are_kept() -> None:
    node = Admissions()
    required = f"{node.keys[7]}::2"
    chosen = node.joint.hcas_for(node.pool, node.free, [required], 3)
    assert required in chosen
    assert len({key_of(name) for name in chosen}) == 3


def test_before_the_first_snapshot_any_devices_are_the_answer() -> None:
    node = Admissions()
    empty = JointPlacement(Requesters())
    assert len(empty.hcas_for(node.pool, node.free, (), 2)) == 2
    choose = empty.following(GPU, dict, first)
    assert choose(GPUS, (), 2) == GPUS[:2]


class Listed:
    """A kubelet that lists its pods, and a daemon that offers GPUs and exclusive HCAs of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pods: dict[str, dict[str, tuple[str, ...]]] = {}
        self.containers: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}
        self.recorded: list[Record] = []
        self.begun: list[Record] = []
        known = remembered_hcas((), HGX)
        pool = Pool(resource=HCA, most=8, mode=SharingMode.EXCLUSIVE)
        (self.pool,) = offer_hcas(HGX, known, [pool]).resources
        self.keys = [one.key for one in known]
        self.start()

    def start(self) -> None:
        """Start a daemon, which remembers nothing."""
        self.gate = AdmissionGate()
        self.requesters = Requesters(
            self.listed,
            records=lambda: frozenset(self.recorded),
            gate=self.gate,
            clock=lambda: self.now,
        )
        for resource in (GPU, HCA):
            self.requesters.around(resource, first, Mock(spec=Answers))
        self.joint = JointPlacement(self.requesters)
        self.joint.take(
            Pairing(snapshot=HGX),
            {name: at for at, name in enumerate(GPUS)},
            {key: at for at, key in enumerate(self.keys)},
        )
        placement = Placement(Policy.BEST, Model.RING)
        placement.take(HGX, whole(HGX))
        choice = PodChoice(GPU, placement)
        self.joint.expect(GPUS, choice)
        self.joint.offer([self.pool])
        self.follow = self.joint.following(GPU, lambda: dict(zip(GPUS, GPUS, strict=True)), choice)
        self.requesters.prime(self.listed)

    def listed(self) -> list[Pod]:
        """Answer as the kubelet's List does."""
        return [
            listed_pod("ml", name, {**self.containers.get(name, {}), "work": held})
            for name, held in self.pods.items()
        ]

    def give(
        self,
        name: str,
        resource: str,
        size: int,
        container: str = "work",
        *,
        required: tuple[str, ...] = (),
        taken: tuple[str, ...] = (),
    ) -> list[int]:
        """Choose for a container of the pod, which is admitted now, and give; return positions.

        Containers named ``init`` are not listed; those of other names are before ``work``. The
        kubelet can have *taken* others than were chosen.
        """
        if self.begun and self.begun[0][:2] != (name, container):
            self.recorded += self.begun
            self.begun = []
        held = self.pods.setdefault(name, {})
        if container == "init":
            held = {}
        elif container != "work":
            held = self.containers.setdefault(name, {}).setdefault(container, {})
        is_gpu = resource == GPU
        everything = GPUS if is_gpu else [device.id for device in self.pool.devices]
        records = (*self.recorded, *self.begun)
        in_use = {one for _, _, kind, ids in records if kind == resource for one in ids}
        free = [one for one in everything if one not in in_use or one in required]
        with self.gate.choosing(is_reserved=bool(required), waits=Mock()):
            self.requesters.look(resource, required, size, free)
        if is_gpu:
            chosen = tuple(self.follow(free, required, size))
        else:
            chosen = self.joint.hcas_for(self.pool, free, required, size)
        chosen = taken or chosen
        self.begun.append((name, container, resource, frozenset(chosen)))
        self.requesters.gave(resource, chosen)
        held[resource] = chosen
        return [GPUS.index(one) if is_gpu else self.keys.index(key_of(one)) for one in chosen]

    def pairs(self, name: str) -> list[Closeness | None]:
        """Return how near the GPUs of a pod are to HCAs of its own."""
        held = self.pods[name]
        gpus = sorted(GPUS.index(one) for one in held[GPU])
        hcas = sorted(self.keys.index(key_of(one)) for one in held[HCA])
        found = Pairing(snapshot=HGX).matched(gpus, hcas)
        return [pair.closeness for pair in found]

    def are_near(self, name: str) -> bool:
        """Return whether every pair of a pod is behind one switch or several."""
        return all(one is not None and one <= Closeness.PXB for one in self.pairs(name))


BOTH_ORDERS = pytest.mark.parametrize("order", [(GPU, HCA), (HCA, GPU)], ids=["gpus", "hcas"])


@BOTH_ORDERS
@pytest.mark.parametrize("alone", [GPU, HCA])
@pytest.mark.parametrize("later_s", [0.01, 2 * WINDOW_S])
def test_what_a_pod_of_one_kind_took_misleads_no_other(
    order: tuple[str, str], alone: str, later_s: float
) -> None:
    node = Listed()
    node.give("alone", alone, 4)
    node.now += later_s
    for resource in order:
        node.give("both", resource, 4)
    assert len(node.pairs("both")) == 4
    assert node.are_near("both"), node.pairs("both")
    assert node.requesters.lookups == Counter(known=3)


@BOTH_ORDERS
def test_a_daemon_that_starts_between_the_two_calls_matches_them(order: tuple[str, str]) -> None:
    node = Listed()
    for resource in (GPU, HCA):
        node.give("before", resource, 2)
    node.give("both", order[0], 2)
    node.start()
    node.give("both", order[1], 2)
    assert node.are_near("both"), node.pairs("both")


@BOTH_ORDERS
def test_a_daemon_that_starts_then_needs_the_specs_where_a_pod_has_one_kind_only(
    order: tuple[str, str],
) -> None:
    node = Listed()
    node.give("alone", order[0], 2)
    node.give("both", order[0], 2)
    node.start()
    node.requesters.requests = lambda pod, _: (
        {order[0]: 2} if pod[1] == "alone" else dict.fromkeys(order, 2)
    )
    node.give("both", order[1], 2)
    assert node.are_near("both"), node.pairs("both")
    node.start()
    node.give("unclear", order[1], 1)
    assert node.requesters.lookups == Counter(known=1)


@BOTH_ORDERS
def test_a_container_is_matched_however_long_its_admission_takes(order: tuple[str, str]) -> None:
    node = Listed()
    for number in range(4):
        name = f"pod-{number}"
        node.give(name, order[number % 2], 2)
        node.now += 100 * WINDOW_S
        node.give(name, order[1 - number % 2], 2)
        assert node.are_near(name), node.pairs(name)


def test_one_pod_of_each_kind_is_no_guess() -> None:
    node = Listed()
    node.give("gpus", GPU, 1)
    node.give("hcas", HCA, 1)
    assert node.joint.followed(node.pods["hcas"][HCA]) == ()


def test_without_a_list_the_latest_of_the_other_kind_is_followed() -> None:
    node = Listed()
    node.requesters.need("joint placement", is_needed=False)
    assert sorted(node.give("a", GPU, 2)) == sorted(node.give("a", HCA, 2))
    assert node.requesters.lookups == Counter()


def test_shared_pools_need_no_requesters() -> None:
    node = Listed()
    assert node.requesters.is_needed
    shared = Pool(resource=HCA, most=8, mode=SharingMode.SHARED)
    node.joint.offer(offer_hcas(HGX, remembered_hcas((), HGX), [shared]).resources)
    assert not node.requesters.is_needed


@BOTH_ORDERS
@pytest.mark.parametrize(("helper", "work"), [(4, 4), (2, 3), (1, 1)])
@pytest.mark.parametrize("kind", [GPU, HCA])
def test_a_container_is_not_placed_beside_what_an_earlier_one_has(
    order: tuple[str, str], helper: int, work: int, kind: str
) -> None:
    node = Listed()
    node.pods["a"] = {}
    node.containers["a"] = {"helper": {}}
    node.give("a", kind, helper, "helper")
    for resource in order:
        node.give("a", resource, work)
    assert len(node.pairs("a")) == work
    assert node.are_near("a"), node.pairs("a")


@BOTH_ORDERS
@pytest.mark.parametrize("size", [2, 4])
def test_what_an_init_container_left_is_followed(order: tuple[str, str], size: int) -> None:
    node = Listed()
    node.pods["a"] = {}
    required = (f"{node.keys[6]}::0",)
    node.give("a", HCA, 1, "init", taken=required)
    for resource in order:
        node.give("a", resource, size, required=required if resource == HCA else ())
    assert required[0] in node.pods["a"][HCA]
    assert all(GPUS.index(gpu) >= 4 for gpu in node.pods["a"][GPU])
    assert len(node.pairs("a")) == size
    assert node.are_near("a"), node.pairs("a")


def test_what_only_an_init_container_has_is_not_expected_by_others() -> None:
    node = Listed()
    node.pods["a"] = {}
    node.give("a", HCA, 3, "init")
    node.give("a", GPU, 2)
    node.give("b", GPU, 1)
    node.give("b", HCA, 1)
    assert node.are_near("b"), node.pairs("b")


def test_a_container_that_asks_for_no_gpus_leaves_the_hcas_of_free_ones() -> None:
    node = Listed()
    node.give("gpus", GPU, 5)
    left = {at for at in range(8) if GPUS[at] not in node.pods["gpus"][GPU]}
    node.requesters.requests = lambda pod, _: {HCA: 4} if pod[1] == "hcas" else None
    assert not left & set(node.give("hcas", HCA, 4))


def test_a_spec_tells_how_many_gpus_come_after_the_hcas() -> None:
    node = Listed()
    (other,) = node.give("other", GPU, 1)
    free = range(4, 8) if other < 4 else range(4)
    node.requesters.requests = lambda *_: {HCA: 1, GPU: 4}
    (hca,) = node.give("a", HCA, 1)
    assert sorted(node.give("a", GPU, 4)) == list(free)
    assert hca in free
