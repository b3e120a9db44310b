"""The sentences: right for every policy and model, and fit to be read aloud."""

import pytest
from msgspec.structs import replace

from nodetopo.allocation.account import account
from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.bandwidth import with_measured_pairs
from nodetopo.allocation.explain import TERM, Explanation, compared
from nodetopo.allocation.facts import facts
from nodetopo.allocation.measured import Measured
from nodetopo.allocation.rules import TERMS, Model, Policy, Rules, terms_for
from nodetopo.allocation.shared.terms import SharedScore
from nodetopo.allocation.terms import Terms
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Mig
from nodetopo.model.pci import PcieLink
from nodetopo.model.snapshot import Snapshot

DGX = machine("dgx-1v")
H100 = machine("dgx-h100")
EVERYONE = 0b11111111
NVLINKS = "generation-2 NVLinks"
FAR = "between NUMA nodes (SYS)"


def mask(*positions: int) -> int:
    return sum(1 << position for position in positions)


def explanation(snapshot: Snapshot, rules: Rules) -> Explanation:
    return Explanation(snapshot, with_measured_pairs(facts(snapshot), rules.measured), rules)


def bandwidth(snapshot: Snapshot, rules: Rules, *positions: int) -> str:
    """Return the sentence on the bandwidth of a set."""
    score = Terms(facts(snapshot), rules).score(mask(*positions), EVERYONE)
    return explanation(snapshot, rules).bandwidth(score)


def test_a_person_can_read_the_choice_on_an_nvswitch_machine_aloud() -> None:
    h100 = machine("dgx-h100")
    allocator = Allocator(h100)
    ids = [gpu.id for gpu in h100.gpus]
    found = allocator.allocate(available=[*ids[:4], *ids[4:7]], size=4)
    assert found.reasons == (
        "450 GB/s by ring, 18 generation-4 NVLinks each way through NVSwitch",
        "all on NUMA node 0",
        "one HCA each: mlx5_0, mlx5_1, mlx5_2, mlx5_3, through several PCIe switches (PXB)",
        "next best GPU0 GPU1 GPU4 GPU5: loses on NUMA nodes, 2 against 1",
        (
            "leaves 3 GPUs together on NUMA node 1, "
            "worth 450 of the node's 4680 weighted GB/s to later jobs"
        ),
    )


@pytest.mark.parametrize(
    ("rules", "positions", "sentence"),
    [
        (Rules(), (0,), "one GPU sends nothing to another"),
        (Rules(), (0, 3), "50 GB/s by ring, 2 generation-2 NVLinks between the two"),
        (Rules(), (0, 1), "25 GB/s by ring, 1 generation-2 NVLink between the two"),
        (
            Rules(),
            (0, 1, 2, 3),
            f"100 GB/s by ring, 2 rings of {NVLINKS} that share no link, each used both ways",
        ),
        (Rules(), (0, 1, 2), "50 GB/s by ring, a ring of generation-2 NVLinks, used both ways"),
        (
            Rules(),
            (0, 1, 2, 4),
            f"7 GB/s by ring, in part over PCIe generation 3, at worst {FAR}",
        ),
        (
            Rules(model=Model.RELAY),
            (0, 1, 2, 4),
            "50 GB/s by relay, data passed on by GPUs of the set over generation-2 NVLinks",
        ),
        (
            Rules(model=Model.RELAY),
            (0, 3),
            "50 GB/s by relay, 2 generation-2 NVLinks between the two",
        ),
    ],
)
def test_the_bandwidth_is_said_with_its_model_and_what_it_goes_over(
    rules: Rules, positions: tuple[int, ...], sentence: str
) -> None:
    assert bandwidth(DGX, rules, *positions) == sentence


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        ((0, 5), "80 GB/s as measured, over PCIe generation 3, at worst "),
        ((0, 1), "24.1 GB/s by ring over measured links, this set was not measured, 1 "),
        ((0, 3), "50 GB/s by ring, this set was not measured, 2 "),
    ],
)
def test_measured_figures_are_called_measured(positions: tuple[int, ...], sentence: str) -> None:
    measured = Measured(pairs={frozenset({0, 1}): 241}, sets={frozenset({0, 5}): 800})
    rules = Rules(model=Model.TABLE, measured=measured)
    assert bandwidth(DGX, rules, *positions).startswith(sentence)


@pytest.mark.parametrize(
    ("policy", "theirs", "sentence"),
    [
        (Policy.BEST, (0, 4), "wins on bandwidth, 50 against 25"),
        (Policy.NUMA_FIRST, (0, 4), "loses on NUMA nodes, 2 against 1"),
        (Policy.DISTRIBUTED, (0, 4), "wins on crowding of NUMA nodes, 2 against 4"),
        (Policy.PACKED, (0, 4), "loses on worth of what is left to later jobs, 220 against 350"),
        (Policy.NIC_REQUIRED, (0, 4), "wins on GPUs that share an HCA, 0 against 1"),
        (Policy.BEST, (2, 3), "wins on bandwidth, 50 against 25"),
        (Policy.BEST, (4, 5), "equal in every term, the lower GPU numbers win"),
        (Policy.BEST, (0, 1), "equal in every term"),
    ],
)
def test_sets_are_compared_in_the_order_of_the_policy(
    policy: Policy, theirs: tuple[int, ...], sentence: str
) -> None:
    terms = Terms(facts(DGX), Rules(policy=policy))
    ours, other = terms.score(mask(0, 1), EVERYONE), terms.score(mask(*theirs), EVERYONE)
    assert compared(ours, other, TERMS[policy]) == sentence


@pytest.mark.parametrize("policy", Policy)
def test_the_next_best_never_wins(policy: Policy) -> None:
    allocator = Allocator(DGX, Rules(policy=policy))
    available = [gpu.id for gpu in DGX.gpus[1:]]
    for size in range(1, 7):
        found = allocator.allocate(available=available, size=size)
        line = next(line for line in found.reasons if line.startswith("next best "))
        assert ": loses on " in line or ": equal in every term, the lower" in line, line


def test_without_knowing_what_was_free_nothing_is_said_of_other_sets() -> None:
    found = Allocator(DGX).describe([DGX.gpus[0].id, DGX.gpus[1].id])
    assert found.reasons == (
        "25 GB/s by ring, 1 generation-2 NVLink between the two",
        "all on NUMA node 0",
        "1 GPU shares its HCA with another: mlx5_0, through one PCIe switch (PIX)",
    )


def test_a_given_set_that_is_not_the_best_names_the_better_one() -> None:
    ids = [gpu.id for gpu in DGX.gpus]
    found = Allocator(DGX).describe(ids[:2], ids[:4])
    assert "better GPU0 GPU3: wins on bandwidth, 50 against 25" in found.reasons


def test_unknown_numa_nodes_are_named_and_not_counted() -> None:
    gpus = (replace(DGX.gpus[0], numa_node=None), *DGX.gpus[1:])
    unknown = explanation(replace(DGX, gpus=gpus), Rules())
    assert unknown.places((0, 1)) == "the NUMA node of GPU0 is not known"
    assert unknown.numa_nodes((0, 1)) is None
    assert unknown.leaves(mask(0, 1), 25.0) == "leaves 2 GPUs, worth 25 weighted GB/s to later jobs"


def test_sets_over_several_nodes_and_sockets_say_so() -> None:
    said = explanation(DGX, Rules())
    assert said.places((0, 4)) == "on NUMA nodes 0 and 1, 2 sockets"
    assert said.places((0,)) == "on NUMA node 0"
    assert said.leaves(0, 0.0) == "leaves no GPU"


def test_hcas_are_named_with_the_worst_way() -> None:
    said = explanation(DGX, Rules())
    assert said.hcas((0,), 0) == "nearest HCA mlx5_0, through one PCIe switch (PIX)"
    assert said.hcas((0, 1, 2, 3), 2) == (
        "2 GPUs share their HCA with another: mlx5_0, mlx5_1, through one PCIe switch (PIX)"
    )
    assert explanation(replace(DGX, hcas=()), Rules()).hcas((0,), 0) == ""


def test_gpus_without_a_known_hca_are_not_said_to_share_one() -> None:
    pairs = tuple(pair for pair in DGX.pairs if "GPU3" not in {pair.a, pair.b})
    gpus = tuple(
        replace(gpu, path=None, pci=None, numa_node=None) if gpu.index == 3 else gpu
        for gpu in DGX.gpus
    )
    found = Allocator(replace(DGX, gpus=gpus, pairs=pairs)).describe([DGX.gpus[0].id, gpus[3].id])
    assert found.score.rail_loss == 1
    assert (
        "nearest HCA mlx5_0, through one PCIe switch (PIX); GPU3 has no known HCA" in found.reasons
    )
    three = [gpu.id for gpu in (*DGX.gpus[:2], gpus[3])]
    found = Allocator(replace(DGX, gpus=gpus, pairs=pairs)).describe(three)
    assert found.reasons[-1] == (
        "1 GPU shares its HCA with another: mlx5_0, through one PCIe switch (PIX); "
        "GPU3 has no known HCA"
    )


def test_sockets_that_are_not_known_are_not_counted() -> None:
    assert explanation(replace(DGX, cpu=None), Rules()).places((0, 4)) == "on NUMA nodes 0 and 1"


def test_an_assumed_pcie_generation_is_called_so() -> None:
    unknown = replace(DGX, gpus=tuple(replace(gpu, pcie=None) for gpu in DGX.gpus))
    said = bandwidth(unknown, Rules(), 0, 5)
    assert said == f"7 GB/s by ring, over PCIe, generation not known, counted as 3, at worst {FAR}"
    measured = Measured(pairs={}, sets={frozenset({0, 5}): 800})
    said = bandwidth(unknown, Rules(measured=measured), 0, 5)
    assert said == f"80 GB/s as measured, over PCIe, generation not known, at worst {FAR}"


def test_nvlinks_of_an_assumed_generation_are_called_so() -> None:
    links = tuple(replace(link, version=None, speed_mbps=None) for link in DGX.nvlinks or ())
    gpus = tuple(replace(gpu, architecture=None) for gpu in DGX.gpus)
    unknown = replace(DGX, gpus=gpus, nvlinks=links)
    counted = "of unknown generation, counted at 20 GB/s each"
    two = "2 NVLinks between the two"
    assert bandwidth(unknown, Rules(), 0, 3) == f"40 GB/s by ring, {two}, {counted}"
    ring = "a ring of NVLinks, used both ways"
    assert bandwidth(unknown, Rules(), 0, 1, 2) == f"40 GB/s by ring, {ring}, {counted}"
    measured = Rules(measured=Measured(pairs={frozenset({0, 3}): 479}, sets={}))
    said = bandwidth(unknown, measured, 0, 3)
    assert said == f"47.9 GB/s by ring over measured links, {two}"
    switched = machine("dgx-h100")
    links = tuple(replace(link, version=None, speed_mbps=None) for link in switched.nvlinks or ())
    gpus = tuple(replace(gpu, architecture=None) for gpu in switched.gpus)
    said = bandwidth(replace(switched, gpus=gpus, nvlinks=links), Rules(), 0, 1)
    assert said == f"360 GB/s by ring, 18 NVLinks each way through NVSwitch, {counted}"


def test_the_architecture_tells_the_rate_of_links_that_do_not() -> None:
    links = tuple(replace(link, version=None, speed_mbps=None) for link in DGX.nvlinks or ())
    said = bandwidth(replace(DGX, nvlinks=links), Rules(), 0, 3)
    assert said == "50 GB/s by ring, 2 NVLinks between the two"


def test_a_set_of_which_some_pairs_were_measured_is_partly_measured() -> None:
    rules = Rules(measured=Measured(pairs={frozenset({0, 1}): 241}, sets={}))
    assert " by ring, partly measured, a ring of " in bandwidth(DGX, rules, 0, 1, 2)


def test_gpus_in_mig_mode_are_named() -> None:
    gpus = tuple(
        replace(gpu, mig=Mig(is_enabled=True)) if gpu.index in {2, 3} else gpu for gpu in DGX.gpus
    )
    allocator = Allocator(replace(DGX, gpus=gpus))
    one = allocator.describe([gpu.id for gpu in gpus[:3]])
    assert "GPU2 is in MIG mode: no NVLink, no peer access" in one.reasons
    two = allocator.describe([gpu.id for gpu in gpus[2:4]])
    assert "GPU2 and GPU3 are in MIG mode: no NVLink, no peer access" in two.reasons


def test_a_degraded_gpu_that_comes_last_is_named_with_what_is_wrong() -> None:
    link = PcieLink(width=4, max_width=16)
    gpus = tuple(replace(gpu, pcie=link) if gpu.index == 3 else gpu for gpu in H100.gpus)
    ids = [gpu.id for gpu in gpus]
    allocator = Allocator(replace(H100, gpus=gpus))
    answer = allocator.allocate(available=ids[2:6], size=2, degraded=ids[3:4])
    assert answer.indices == (4, 5)
    assert "GPU3 comes last: it is degraded (4 of 16 PCIe lanes)" in answer.reasons
    both = allocator.allocate(available=ids[2:6], size=1, degraded=ids[3:5])
    assert (
        "GPU3 and GPU4 come last: they are degraded (GPU3 has 4 of 16 PCIe lanes)" in both.reasons
    )
    taken = allocator.describe(ids[3:4], degraded=ids[3:4])
    assert "GPU3 is degraded (4 of 16 PCIe lanes)" in taken.reasons
    assert "GPU3 has 4 of 16 PCIe lanes" in allocator.describe(ids[3:4]).reasons


def test_every_term_that_can_decide_has_a_name() -> None:
    compared_anywhere = {
        name for policy in Policy for n in (1, 2, 3) for name in terms_for(policy, n)
    }
    own = set(SharedScore.__struct_fields__)
    assert (compared_anywhere | own) - {"order", "counts_as_gb_s"} == set(TERM)


def test_an_account_holds_every_key_and_nulls_for_what_is_unknown() -> None:
    ids = [gpu.id for gpu in DGX.gpus]
    allocator = Allocator(DGX)
    said = Explanation(DGX, allocator.facts, value_of_all=allocator.value_of_all)
    chosen = allocator.allocate(available=ids[:4], size=2)
    assert account(chosen, said, mask(1, 2)) == {
        "bandwidth_gb_s": 50.0,
        "model": "ring",
        "links": "2 generation-2 NVLinks between the two",
        "numa_nodes": [0],
        "hcas": ["mlx5_0", "mlx5_1"],
        "next_best": [ids[1], ids[2]],
        "lost_at": "order",
        "leaves": "leaves 2 GPUs together on NUMA node 0, "
        "worth 50 of the node's 960 weighted GB/s to later jobs",
        "said": f"GPU0 GPU3: {'; '.join(chosen.reasons)}",
    }
    unasked = account(allocator.describe(ids[:1]), said, None)
    assert {key for key, value in unasked.items() if value is None} == {
        "bandwidth_gb_s",
        "links",
        "next_best",
        "lost_at",
        "leaves",
    }
