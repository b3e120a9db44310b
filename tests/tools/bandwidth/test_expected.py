"""What devices should carry: figures and ranges with sources, and when nothing is expected."""

import pytest
from msgspec.structs import replace

from nodetopo.allocation.measured import Measured, Operation
from nodetopo.machines.bundled import machine, names
from nodetopo.model.gpu import Mig
from nodetopo.model.nvlink import Closeness, P2pStatus, PeerAccess, ReportedPair
from nodetopo.model.pci import PcieLink
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth.as_built import sound
from nodetopo.tools.bandwidth.expectation import Expected, assumptions, both_ways, text, to_plain
from nodetopo.tools.bandwidth.expected import Model


def bounds(one: Expected) -> tuple[float, float]:
    assert one.low is not None
    assert one.high is not None
    return round(one.low, 1), round(one.high, 1)


def pair(name: str, a: int, b: int) -> Expected:
    snapshot = machine(name)
    return Model(snapshot).pair(snapshot.gpus[a], snapshot.gpus[b])


@pytest.mark.parametrize(
    ("name", "low", "high", "gate"),
    [
        ("dgx-a100", 255.0, 276.0, 235.0),
        ("dgx-h100", 369.0, 414.0, 335.0),  # nccl issue 1264 has 371
        ("hgx-b200", 738.0, 828.0, None),
    ],
)
def test_a_pair_over_nvswitches_carries_a_share_of_all_its_links(
    name: str, low: float, high: float, gate: float | None
) -> None:
    one = pair(name, 0, 7)
    assert bounds(one) == (low, high)
    assert one.gate == pytest.approx(gate if gate is not None else 0.87 * low)
    assert "nvbandwidth" in (one.source or "")
    assert ("Azure" in (one.source or "")) is (gate is not None)


def test_pairs_of_a_mesh_carry_what_their_own_links_do() -> None:
    assert bounds(pair("dgx-1v", 0, 1)) == (21.2, 24.2)
    assert bounds(pair("dgx-1v", 0, 3)) == (42.5, 48.5)


def test_a_pair_behind_one_switch_has_a_figure_and_one_across_sockets_a_range() -> None:
    near, far = pair("rtxpro6000-pcie-8", 0, 1), pair("rtxpro6000-pcie-8", 0, 7)
    assert bounds(near) == (54.8, 54.8)  # 0.87 of 63
    assert near.default == near.low
    assert not near.is_wide
    assert far.is_wide
    assert bounds(far) == (8.2, 54.8)  # 0.15 to 1.0 of that
    assert far.default == pytest.approx(0.6 * (far.high or 0))


def test_a_link_of_fewer_lanes_lowers_what_is_carried_now_but_not_as_it_is_built() -> None:
    snapshot = narrowed(machine("rtxpro6000-pcie-8"), 0, 4)
    a, b = snapshot.gpus[:2]
    assert bounds(Model(snapshot).pair(a, b)) == (13.7, 13.7)
    assert bounds(Model(sound(snapshot)).pair(a, b)) == (54.8, 54.8)
    assert bounds(Model(snapshot).to_host(a)) == (13.7, 13.7)


def narrowed(snapshot: Snapshot, index: int, width: int) -> Snapshot:
    gpus = list(snapshot.gpus)
    link = gpus[index].pcie
    assert link is not None
    gpus[index] = replace(gpus[index], pcie=replace(link, width=width, max_width=16))
    return replace(snapshot, gpus=tuple(gpus))


def test_an_inactive_nvlink_lowers_what_is_carried_now_but_not_as_it_is_built() -> None:
    snapshot = machine("dgx-h100")
    links = snapshot.nvlinks
    assert links is not None
    down = tuple(
        replace(link, is_active=False) if link.gpu == 0 and link.link < 9 else link
        for link in links
    )
    snapshot = replace(snapshot, nvlinks=down)
    a, b = snapshot.gpus[:2]
    assert bounds(Model(snapshot).pair(a, b)) == (184.5, 207.0)
    assert bounds(Model(sound(snapshot)).pair(a, b)) == (369.0, 414.0)


def test_a_gpu_and_its_hca_carry_the_port_and_a_far_one_a_range() -> None:
    snapshot = machine("dgx-h100")
    assert snapshot.hcas is not None
    model = Model(snapshot)
    near = model.to_hca(snapshot.gpus[0], snapshot.hcas[0])
    assert bounds(near) == (47.5, 49.5)  # 0.95 to 0.99 of 400 Gb/s
    assert near.gate == 47.5  # Azure: 380 Gb/s
    far = model.to_hca(snapshot.gpus[0], snapshot.hcas[7])
    assert far.is_wide
    assert bounds(far) == (7.4, 49.5)


def test_beside_an_h200_azures_gate_is_lower() -> None:
    snapshot = machine("hgx-h200")
    assert snapshot.hcas is not None
    fast = [
        one
        for hca in snapshot.hcas
        if (one := Model(snapshot).to_hca(snapshot.gpus[0], hca)).high == 49.5
    ]
    near = [one for one in fast if not one.is_wide and one.low == 47.5]
    assert {one.gate for one in near} == {45.0}


def test_an_hca_that_is_down_carries_nothing_known() -> None:
    snapshot = machine("dgx-h100")
    assert snapshot.hcas is not None
    hca = snapshot.hcas[0]
    down = replace(hca, ports=tuple(replace(port, state="DOWN") for port in hca.ports))
    snapshot = replace(snapshot, hcas=(down, *snapshot.hcas[1:]))
    one = Model(snapshot).to_hca(snapshot.gpus[0], down)
    assert (one.low, one.reason) == (None, "no port of mlx5_0 is active")
    built = sound(snapshot)
    assert built.hcas is not None
    assert bounds(Model(built).to_hca(built.gpus[0], built.hcas[0])) == (47.5, 49.5)


def test_in_a_virtual_machine_nothing_is_inferred_from_sys() -> None:
    snapshot = machine("h100-vm-8")
    assert snapshot.hcas is not None
    one = Model(snapshot).to_hca(snapshot.gpus[0], snapshot.hcas[7])
    assert one.low is None
    assert one.reason == "SYS says nothing in a virtual machine: its PCIe tree is invented"


@pytest.mark.parametrize("size", [8, 4, 2])
def test_a_set_behind_nvswitches_has_its_own_figures_as_a_whole(size: int) -> None:
    snapshot = machine("dgx-h100")
    one = Model(snapshot).of_set(snapshot.gpus[:size])
    if size == 8:
        assert (bounds(one), one.gate, one.gate_size) == ((475.0, 480.0), 460.0, 16 << 30)
        assert "NVLS" in assumptions(one)
    else:
        assert bounds(one) == (360.0, 481.5)


H100, A100, B200 = machine("dgx-h100"), machine("dgx-a100"), machine("hgx-b200")


@pytest.mark.parametrize(
    ("snapshot", "operation", "figures"),
    [
        # nccl-tests issue 212, of every operation but all_reduce; 364 to 370 are published.
        (H100, Operation.ALL_GATHER, (364.0, 370.0)),
        (H100, Operation.REDUCE_SCATTER, (364.0, 370.0)),
        (H100, Operation.BROADCAST, (365.0, 370.0)),
        (H100, Operation.SENDRECV, (364.0, 370.0)),
        (H100, Operation.ALLTOALL, (342.0, 345.0, 370.0)),
        # superbenchmark's test data, of one sound node.
        (A100, Operation.ALL_GATHER, (230.1,)),
        (A100, Operation.REDUCE, (228.8,)),
        (A100, Operation.REDUCE_SCATTER, (231.5,)),
        (A100, Operation.BROADCAST, (234.7,)),
        (A100, Operation.ALLTOALL, (226.2,)),
        (A100, Operation.ALL_REDUCE, (230.0, 235.3)),
        (B200, Operation.ALL_GATHER, (680.0,)),
        (B200, Operation.ALL_REDUCE, (846.0,)),
        (H100, Operation.ALL_REDUCE, (475.0, 476.0, 480.0)),
    ],
)
def test_what_was_published_of_an_operation_is_in_its_range(
    snapshot: Snapshot, operation: Operation, figures: tuple[float, ...]
) -> None:
    one = Model(snapshot).of_set(snapshot.gpus, operation)
    low, high = bounds(one)
    assert [figure for figure in figures if not low <= figure <= high] == []
    assert one.gate is not None
    assert one.gate <= low


@pytest.mark.parametrize(
    ("snapshot", "operation"),
    [
        (B200, Operation.ALLTOALL),
        (H100, Operation.GATHER),
        (H100, Operation.SCATTER),
        (H100, Operation.HYPERCUBE),
        (H100, Operation.ALLTOALLV),
        (machine("dgx-1v"), Operation.ALLTOALL),
        (machine("rtxpro6000-pcie-8"), Operation.SENDRECV),
    ],
)
def test_nothing_is_expected_of_an_operation_that_nobody_published(
    snapshot: Snapshot, operation: Operation
) -> None:
    one = Model(snapshot).of_set(snapshot.gpus, operation)
    assert one.low is None
    assert operation in (one.reason or "")


def test_without_nvls_an_all_reduce_carries_what_rings_do() -> None:
    def of(*algorithms: str) -> Expected:
        return Model(H100).of_set(H100.gpus, Operation.ALL_REDUCE, frozenset(algorithms))

    assert bounds(of("ring", "tree")) == (360.0, 373.5)
    assert bounds(of("ring", "nvls")) == bounds(of("nvls")) == (475.0, 480.0)
    assert of("tree").reason == "nothing is published about all_reduce_perf by tree"


def test_both_ways_an_hca_carries_nearly_twice_as_much() -> None:
    assert H100.hcas is not None
    one = both_ways(Model(H100).of_hca(H100.hcas[0]))
    assert one.low is not None
    assert one.gate is not None
    assert bounds(one)[1] == 99.0
    assert one.gate < one.low < 756 / 8 < 99.0  # 756 Gb/s of 800 is sound
    far = Model(H100).to_hca(H100.gpus[0], H100.hcas[7])
    assert both_ways(far).low == far.low  # the bridge between the CPUs may be shared
    down = Expected(reason="down")
    assert both_ways(down) is down


def test_a_set_of_a_mesh_carries_what_its_rings_do() -> None:
    snapshot = machine("dgx-1v")
    four = Model(snapshot).of_set(snapshot.gpus[:4])
    assert bounds(four) == (75.0, 92.0)  # 100 GB/s of payload: two rings, each way
    crossing = Model(snapshot).of_set([snapshot.gpus[index] for index in (0, 3, 4)])
    assert "SYS" in (crossing.over or "")


def test_a_set_over_pcie_is_as_its_narrowest_hop() -> None:
    snapshot = machine("rtxpro6000-pcie-8")
    assert bounds(Model(snapshot).of_set(snapshot.gpus[:2])) == (54.8, 54.8)
    whole = Model(snapshot).of_set(snapshot.gpus)
    assert bounds(whole) == (8.2, 54.8)
    assert whole.is_wide


def test_an_nvlink_bridge_has_the_gate_of_its_product() -> None:
    snapshot = machine("a100-pcie-4")
    one = Model(snapshot).of_set(snapshot.gpus[:2])
    assert one.gate == 193.0
    assert (one.low or 0) <= 193.0 * 1.05


def test_a_measured_figure_wins_and_is_named_as_the_source() -> None:
    snapshot = machine("dgx-1v")
    measured = Measured(pairs={frozenset((0, 1)): 241}, sets={frozenset((0, 1, 2, 3)): 926})
    model = Model(snapshot, measured, "bandwidth table t.yaml")
    one = model.pair(snapshot.gpus[1], snapshot.gpus[0])
    assert (one.low, one.high, one.source) == (24.1, 24.1, "bandwidth table t.yaml")
    assert one.gate == pytest.approx(0.9 * 24.1)
    assert bounds(model.of_set(snapshot.gpus[:4])) == (92.6, 92.6)
    # The pair also counts in sets that were not measured as a whole.
    assert bounds(model.of_set(snapshot.gpus[:2])) == (24.1, 24.1)


def test_gpus_in_mig_mode_and_lost_ones_carry_nothing() -> None:
    snapshot = machine("dgx-h100")
    a, b = snapshot.gpus[:2]
    divided = replace(a, mig=Mig(is_enabled=True))
    lost = replace(b, is_lost=True)
    model = Model(replace(snapshot, gpus=(divided, lost, *snapshot.gpus[2:])))
    assert "MIG" in (model.pair(divided, snapshot.gpus[2]).reason or "")
    assert model.pair(lost, snapshot.gpus[2]).reason == "GPU1 is lost"
    assert model.to_host(lost).reason == "GPU1 is lost"


def test_denied_peer_access_and_a_redirecting_bridge_lead_through_the_cpu() -> None:
    snapshot = machine("rtxpro6000-pcie-8")
    refused = PeerAccess(read=P2pStatus.DISABLED_BY_REGKEY, write=P2pStatus.OK)
    denied = ReportedPair(a="GPU0", b="GPU1", closeness=Closeness.PIX, forward=refused)
    others = tuple(one for one in snapshot.pairs if {one.a, one.b} != {"GPU0", "GPU1"})
    one = Model(replace(snapshot, pairs=(denied, *others))).pair(*snapshot.gpus[:2])
    assert bounds(one) == (27.4, 54.8)
    assert "denies peer access" in (one.over or "")

    assert snapshot.bridges is not None
    bridges = tuple(replace(bridge, acs_control=0x1D) for bridge in snapshot.bridges)
    redirected = replace(snapshot, bridges=bridges)
    one = Model(redirected).pair(*redirected.gpus[:2])
    assert bounds(one) == (27.4, 54.8)
    assert "ACS" in (one.over or "")
    assert bounds(Model(sound(redirected)).pair(*redirected.gpus[:2])) == (54.8, 54.8)


def test_a_chip_to_chip_link_and_nvlinks_to_a_cpu_count_in_place_of_pcie() -> None:
    grace = machine("gb200-nvl72")
    assert bounds(Model(grace).to_host(grace.gpus[0]))[0] > 300
    power = machine("ac922")
    assert bounds(Model(power).to_host(power.gpus[0])) == (63.8, 72.8)
    across = Model(power).pair(power.gpus[0], power.gpus[3])
    assert across.low is None  # its two PCIe lanes are not on the way
    assert "no figure is known" in (across.reason or "")


def test_without_its_links_nothing_is_expected_of_a_device() -> None:
    snapshot = machine("rtxpro6000-pcie-8")
    gpus = tuple(replace(gpu, pcie=PcieLink(), function=None) for gpu in snapshot.gpus)
    model = Model(replace(snapshot, gpus=gpus, bridges=None))
    assert model.pair(*gpus[:2]).reason == "the PCIe link of GPU0 is not reported"
    assert model.to_host(gpus[0]).reason == "the PCIe link of GPU0 is not reported"


@pytest.mark.parametrize("name", names())
def test_every_expectation_of_a_machine_is_ordered_and_has_a_source_or_a_reason(name: str) -> None:
    snapshot = machine(name)
    for state in (snapshot, sound(snapshot)):
        model = Model(state)
        found = [model.pair(state.gpus[0], gpu) for gpu in state.gpus[1:]]
        found += [model.to_hca(gpu, hca) for gpu in state.gpus[:2] for hca in state.hcas or ()]
        found += [model.to_host(gpu) for gpu in state.gpus]
        found += [model.of_set(state.gpus[:size]) for size in (2, 4, 8)]
        for one in found:
            if one.low is None:
                assert one.reason
                assert text(one).startswith("not known: ")
            else:
                assert one.high is not None
                assert one.gate is not None
                assert 0 < one.low <= one.high
                assert 0 < one.gate <= one.high
                assert one.default is None or one.low <= one.default <= one.high
                assert one.source
                assert one.over
            assert to_plain(one)["reason"] == one.reason
