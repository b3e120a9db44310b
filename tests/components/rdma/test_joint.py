"""Which requests of the kubelet are taken for one container's, and how that is verified."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from nodetopo.components.rdma.joint import MOST_GUESSES, WINDOW_S, JointPlacement, Kind, Tally
from nodetopo.components.rdma.resources import RdmaResource, key_of, offer_hcas, token_of
from nodetopo.model.codec import decode
from nodetopo.rdma.identity import remembered_hcas
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.pools import Pool, SharingMode

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
        self.joint = JointPlacement(lambda: self.now)
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
        self.follow = self.joint.following(GPU, lambda: dict(zip(GPUS, GPUS, strict=True)), first)
        self.free_gpus, self.free = list(GPUS), [device.id for device in self.pool.devices]
        self.containers: list[set[tuple[str, str]]] = []

    def gpus(self, size: int, within: Sequence[int] = range(8)) -> list[int]:
        """Choose GPUs and give them."""
        offered = [name for name in self.free_gpus if GPUS.index(name) in within]
        chosen = list(self.follow(offered, (), size))
        assert len(chosen) == size
        assert set(chosen) <= set(offered)
        self.free_gpus = [name for name in self.free_gpus if name not in chosen]
        self.joint.gave(Kind.GPU, GPU, chosen, chosen)
        self._held = {(GPU, name) for name in chosen}
        return [GPUS.index(name) for name in chosen]

    def hcas(self, size: int, within: Sequence[int] = range(8)) -> list[int]:
        """Choose HCAs and give them."""
        offered = [name for name in self.free if self.keys.index(key_of(name)) in within]
        chosen = self.joint.hcas_for(self.pool, offered, (), size)
        assert len(set(chosen)) == size
        assert set(chosen) <= set(offered)
        self.free = [name for name in self.free if name not in chosen]
        self.joint.gave(Kind.HCA, HCA, chosen, map(key_of, chosen))
        self._held_hcas = {(HCA, name) for name in chosen}
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
    node.joint.gave(Kind.HCA, "rdma/a", ["x"], [node.keys[6]])
    node.joint.gave(Kind.HCA, "rdma/b", ["y"], [node.keys[7]])
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
    assert node.joint.partners(Kind.HCA, HCA) == ()


def test_after_the_window_nothing_is_followed() -> None:
    node = Admissions()
    node.gpus(1, within=(7,))
    node.now += WINDOW_S + 0.01
    assert node.joint.partners(Kind.HCA, HCA) == ()
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
    empty = JointPlacement()
    assert len(empty.hcas_for(node.pool, node.free, (), 2)) == 2
    choose = empty.following(GPU, dict, first)
    assert choose(GPUS, (), 2) == GPUS[:2]


def test_guesses_are_right_wrong_or_unknown() -> None:
    node = Admissions()
    node.gpus(1)
    node.hcas(1)
    together = node._held | node._held_hcas
    node.gpus(1)
    node.hcas(1)
    apart = [node._held, node._held_hcas]
    node.gpus(1)
    node.hcas(1)  # of a pod that has ended
    assert len(node.joint.guesses) == 3
    node.joint.verify([together, *apart], settled_s=5.0)
    assert node.joint.tally == Tally()  # too early to say
    node.now += 6.0
    node.joint.verify([together, *apart], settled_s=5.0)
    assert node.joint.tally == Tally(right=1, wrong=1, unknown=1)
    assert not node.joint.guesses


def test_devices_of_another_resource_with_the_same_id_are_no_proof() -> None:
    node = Admissions()
    node.gpus(1)
    node.hcas(1)
    node.now += 6.0
    strange = {("example.com/other", name) for _, name in node._held | node._held_hcas}
    node.joint.verify([strange], settled_s=5.0)
    assert node.joint.tally == Tally(unknown=1)


def test_guesses_that_nobody_verifies_do_not_add_up() -> None:
    node = Admissions()
    for number in range(2 * MOST_GUESSES):
        node.joint.gave(Kind.GPU, GPU, [f"g{number}"], [])
        node.joint.gave(Kind.HCA, HCA, [f"h{number}"], [])
        node.now += 2 * WINDOW_S
    assert len(node.joint.guesses) == MOST_GUESSES
    assert node.joint.tally.unknown == MOST_GUESSES


def test_what_the_kubelet_lists_is_in_use_and_nothing_else() -> None:
    node = Admissions()
    node.gpus(4)
    node.hcas(4)
    node.now += 60.0
    node.joint.verify([{(GPU, GPUS[2])}], settled_s=5.0)
    assert sorted(node.hcas(3)) == [0, 1, 3]
