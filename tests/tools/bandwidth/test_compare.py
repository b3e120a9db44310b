"""Figures of logs beside the node: verdicts, whose devices they are, and what explains them."""

import pytest
from msgspec.structs import replace

from nodetopo.allocation.measured import Measured, Operation
from nodetopo.checks.rule import Verdict
from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth.compare import EXPLAIN, NETWORK, Compared, Comparison, compare
from nodetopo.tools.bandwidth.log import Kind
from nodetopo.tools.bandwidth.read import read
from nodetopo.tools.node_rules import node_rules
from tests.tools.bandwidth import logs

H100 = machine("dgx-h100")


def only(comparison: Comparison) -> Compared:
    (one,) = comparison.figures
    return one


def of_all_gpus(busbw: float, **how: object) -> Compared:
    return only(compare(read(logs.nccl_tests(H100, range(8), busbw, **how)), H100))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [
        (480.0, Verdict.PASS),
        (477.0, Verdict.PASS),
        (475.0, Verdict.PASS),
        (474.0, Verdict.WARN),  # below what is published, and 1.05 of the gate
        (460.0, Verdict.WARN),
        (459.9, Verdict.FAIL),
    ],
)
def test_the_gate_fails_and_the_range_passes(busbw: float, verdict: Verdict) -> None:
    assert of_all_gpus(busbw, largest=16 * logs.GIB).verdict is verdict


@pytest.mark.parametrize(
    ("busbw", "largest", "verdict"),
    [
        (437.0, logs.GIB >> 2, Verdict.UNKNOWN),
        (456.0, logs.GIB, Verdict.UNKNOWN),
        (459.0, 8 * logs.GIB, Verdict.UNKNOWN),
        (470.0, 8 * logs.GIB, Verdict.PASS),  # it meets the gate of 16 GiB already
        (476.0, 8 * logs.GIB, Verdict.PASS),
        (300.0, 8 * logs.GIB, Verdict.FAIL),  # rings alone carry more
        (300.0, logs.GIB >> 1, Verdict.UNKNOWN),
    ],
)
def test_a_message_smaller_than_that_of_the_gate_may_meet_it_but_not_fail(
    busbw: float, largest: int, verdict: Verdict
) -> None:
    assert of_all_gpus(busbw, largest=largest).verdict is verdict


@pytest.mark.parametrize(
    "test", ["all_gather_perf", "reduce_scatter_perf", "broadcast_perf", "alltoall_perf"]
)
def test_an_operation_without_nvls_is_held_against_its_own_figures(test: str) -> None:
    for busbw, verdict in ((345.0, Verdict.PASS), (250.0, Verdict.FAIL)):
        assert of_all_gpus(busbw, test=test).verdict is verdict


def test_an_operation_that_the_log_does_not_name_has_no_gate() -> None:
    one = of_all_gpus(226.0, test="all_gather_perf", layout="middle")
    assert (one.figure.test, one.verdict) == ("a collective", Verdict.UNKNOWN)
    assert "which operation" in (one.reason or "")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("$ NCCL_ALGO=Ring ./all_reduce_perf -g 8\n", "", Verdict.PASS),
        ("$ mpirun -x NCCL_NVLS_ENABLE=0 ./all_reduce_perf\n", "", Verdict.PASS),
        ("$ NCCL_ALGO='ring;allreduce:^nvls,nvlstree' ./all_reduce_perf\n", "", Verdict.PASS),
        ("", "node-a:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n", Verdict.PASS),
        ("", "node-a:1:2 [0] NCCL INFO 24 coll channels, 0 nvls channels\n", Verdict.PASS),
        ("", "", Verdict.UNKNOWN),
        ("$ NCCL_ALGO=allgather:ring ./all_reduce_perf\n", "", Verdict.UNKNOWN),
        ("", "node-a:1:2 [0] NCCL INFO 24 coll channels, 16 nvls channels\n", Verdict.FAIL),
        ("$ NCCL_ALGO=Tree ./all_reduce_perf\n", "", Verdict.UNKNOWN),
    ],
)
def test_an_all_reduce_by_rings_is_held_against_rings(
    before: str, after: str, verdict: Verdict
) -> None:
    text = logs.nccl_tests(H100, range(8), 370.0, largest=16 * logs.GIB)
    at = text.index("#       size")
    one = only(compare(read(before + text[:at] + after + text[at:]), H100))
    assert one.verdict is verdict


def test_a_setting_is_of_the_run_that_it_stands_before() -> None:
    run = logs.nccl_tests(H100, range(8), 370.0, largest=16 * logs.GIB)
    text = f"$ NCCL_ALGO=Ring ./all_reduce_perf\n{run}$ ./all_reduce_perf\n{run}"
    found = [one.verdict for one in compare(read(text), H100).figures]
    assert found == [Verdict.PASS, Verdict.UNKNOWN]
    text = f"$ export NCCL_ALGO=Ring\n{run}$ ./all_reduce_perf\n{run}"
    found = [one.verdict for one in compare(read(text), H100).figures]
    assert found == [Verdict.PASS, Verdict.PASS]


def test_both_ways_are_held_against_both_ways() -> None:
    for gbits, verdict in ((756.0, Verdict.PASS), (400.0, Verdict.FAIL)):
        text = logs.perftest("mlx5_0", gbits, test="RDMA_Write Bidirectional BW")
        assert only(compare(read(text), H100)).verdict is verdict


def test_between_the_warning_and_the_range_a_figure_passes() -> None:
    text = logs.nvbandwidth(H100, {}, 360.0)  # gate 335, warns to 351.75, range from 382.5
    assert {one.verdict for one in compare(read(text), H100).figures} == {Verdict.PASS}
    text = logs.nvbandwidth(H100, {}, 351.0)
    assert {one.verdict for one in compare(read(text), H100).figures} == {Verdict.WARN}


def test_across_sockets_a_figure_warns_below_the_default_of_the_range() -> None:
    assert H100.hcas is not None
    pci = H100.gpus[0].pci
    for gbits, verdict in ((380.0, Verdict.PASS), (120.0, Verdict.WARN), (30.0, Verdict.FAIL)):
        log = read(logs.perftest("mlx5_7", gbits, gpu=str(pci)[5:10]))
        assert only(compare(log, H100)).verdict is verdict


def test_a_small_message_proves_no_shortfall() -> None:
    low = of_all_gpus(100.0, largest=1 << 20)
    assert low.verdict is Verdict.UNKNOWN
    assert "latency" in (low.reason or "")
    assert of_all_gpus(478.0, largest=1 << 20).verdict is Verdict.PASS


def test_wrong_data_fails_at_any_speed() -> None:
    assert of_all_gpus(480.0, wrong=1).verdict is Verdict.FAIL


def test_ranks_are_the_gpus_at_their_addresses_and_not_of_their_numbers() -> None:
    one = only(compare(read(logs.nccl_tests(H100, (6, 2), 380.0)), H100))
    assert [gpu.index for gpu in one.gpus] == [6, 2]


def test_a_bus_alone_suffices_where_it_is_unambiguous() -> None:
    text = logs.nccl_tests(H100, range(8), 478.0, layout="middle")
    assert len(only(compare(read(text), H100)).gpus) == 8
    first = H100.gpus[0].pci
    assert first is not None
    twin = replace(H100.gpus[1], pci=replace(first, domain=1))
    doubled = replace(H100, gpus=(H100.gpus[0], twin, *H100.gpus[2:]))
    one = only(compare(read(text), doubled))
    assert (one.gpus, one.verdict) == ((), Verdict.UNKNOWN)
    # With the domain they differ.
    one = only(compare(read(logs.nccl_tests(doubled, (1, 0), 380.0)), doubled))
    assert [gpu.index for gpu in one.gpus] == [1, 0]


def test_gpus_of_another_machine_are_not_compared() -> None:
    one = only(compare(read(logs.nccl_tests(machine("dgx-a100"), range(8), 478.0)), H100))
    assert one.verdict is Verdict.UNKNOWN
    assert "this node does not have" in (one.reason or "")


def test_numbers_without_addresses_are_not_taken_for_nvmls() -> None:
    log = read(logs.nvbandwidth(H100, {}, 390.0, has_addresses=False))
    found = compare(log, H100)
    assert {one.verdict for one in found.figures} == {Verdict.UNKNOWN}
    assert "--gpus" in (found.figures[0].reason or "")
    named = compare(log, H100, gpus=H100.gpus)
    assert {one.verdict for one in named.figures} == {Verdict.PASS}


def test_the_gpus_that_are_named_must_fit_the_log() -> None:
    log = read(logs.nccl_tests(H100, range(4), 380.0))
    with pytest.raises(InputError, match="4 ranks"):
        compare(log, H100, gpus=H100.gpus[:3])
    log = read(logs.nvbandwidth(H100, {}, 390.0))
    with pytest.raises(InputError, match="number"):
        compare(log, H100, gpus=H100.gpus[:3])


def test_a_log_without_ranks_asks_for_its_gpus_and_takes_them() -> None:
    text = logs.without_ranks(
        logs.nccl_tests(H100, range(8), 478.0, layout="middle", largest=16 * logs.GIB), *range(8)
    )
    one = only(compare(read(text), H100))
    assert (one.verdict, one.reason) == (
        Verdict.UNKNOWN,
        "the log names no GPU: name them with --gpus",
    )
    named = only(compare(read(text), H100, gpus=H100.gpus))
    assert (named.figure.test, named.verdict, named.gpus) == (
        "all_reduce_perf",
        Verdict.PASS,
        H100.gpus,
    )
    # Two in the ratio of eight: other GPUs took part.
    few = only(compare(read(text), H100, gpus=H100.gpus[:2]))
    assert (few.verdict, few.gpus) == (Verdict.UNKNOWN, ())
    assert "ratio" in (few.reason or "")


def test_one_address_for_all_ranks_is_none() -> None:
    text = logs.nccl_tests(H100, range(8), 478.0, layout="middle")
    for gpu in H100.gpus:
        assert gpu.pci is not None
        text = text.replace(f"[0x{gpu.pci.bus:02x}]", "[0x00]")
    assert "--gpus" in (only(compare(read(text), H100)).reason or "")
    assert only(compare(read(text), H100, gpus=H100.gpus)).verdict is Verdict.PASS


def test_figures_of_several_hosts_are_told_apart() -> None:
    node = replace(H100, node="node-b.example")
    text = "".join(logs.nccl_tests(node, range(8), 300.0, hosts=(f"node-{it}",)) for it in "ab")
    a, b = compare(read(text), node).figures
    assert [(one.host, one.is_elsewhere(node.node)) for one in (a, b)] == [
        ("node-a", True),
        ("node-b", False),
    ]
    assert only(compare(read(logs.nccl_tests(node, range(8), 478.0)), node)).host is None


def test_the_checks_of_this_node_do_not_explain_another_host() -> None:
    down = tuple(replace(link, is_active=link.gpu != 2) for link in H100.nvlinks or ())
    node = replace(H100, node="node-a", nvlinks=down)
    text = "".join(logs.nccl_tests(H100, range(8), 300.0, hosts=(f"node-{it}",)) for it in "ab")
    a, b = compare(read(text), node).figures
    assert ("NVL-001" in a.checks, b.checks) == (True, ())


@pytest.mark.parametrize(("hosts", "what"), [("ab", "each on one host"), ("aa", "each on one")])
def test_a_split_test_has_no_figure_of_a_group(hosts: str, what: str) -> None:
    text = logs.nccl_tests(H100, range(4), 478.0, hosts=tuple(f"node-{it}" for it in hosts))
    text = "\n".join(
        line.replace("Group  0", "Group  1") if rank > 3 else line
        for line in text.splitlines()
        for rank in [int(line.split()[2]) if line.startswith("#  Rank") else 0]
    )
    one = only(compare(read(text), replace(H100, node="node-a")))
    assert one.verdict is Verdict.UNKNOWN
    assert f"the average of 2 groups of ranks, {what}" in str(one.reason)


def test_named_gpus_tell_the_operation_of_a_table_without_ranks() -> None:
    text = (
        "#       size         count    type    root     time   algbw   busbw  error\n"
        "  8589934592    2147483648   float       0    25450  366.00  366.00  0e+00\n"
    )
    one = only(compare(read(text), H100, gpus=H100.gpus))
    assert (one.figure.test, one.verdict) == (Operation.BROADCAST, Verdict.PASS)
    assert only(compare(read(text), H100)).verdict is Verdict.UNKNOWN


def test_a_table_of_another_operation_is_no_measure() -> None:
    measured = Measured(sets={frozenset(range(8)): 3250})
    log = read(logs.nccl_tests(H100, range(8), 325.0, test="all_gather_perf"))
    one = only(compare(log, H100, measured=measured, table="t.yaml"))
    assert "t.yaml" not in str(one.expected.source)
    one = only(
        compare(log, H100, measured=measured, table="t.yaml", operation=Operation.ALL_GATHER)
    )
    assert (one.verdict, one.expected.source) == (Verdict.PASS, "t.yaml, by all_gather_perf")


def test_an_hca_may_be_named_for_the_log() -> None:
    assert H100.hcas is not None
    log = read(logs.perftest("other_0", 390.0))
    assert "no HCA other_0" in (only(compare(log, H100)).reason or "")
    one = only(compare(log, H100, hcas=H100.hcas[2:3]))
    assert (one.hca, one.verdict) == (H100.hcas[2], Verdict.PASS)
    with pytest.raises(InputError, match="2 times"):
        compare(log, H100, hcas=H100.hcas[:2])
    with pytest.raises(InputError, match="perftest"):
        compare(read(logs.nccl_tests(H100, range(8), 478.0)), H100, hcas=H100.hcas[:1])


def test_over_several_hosts_the_network_decides_and_nothing_is_claimed() -> None:
    here = replace(H100, node="node-b.example.org")
    log = read(logs.nccl_tests(H100, range(8), 90.0, hosts=("node-a", "node-b")))
    one = only(compare(log, here))
    assert one.verdict is Verdict.UNKNOWN
    assert len(one.gpus) == 8
    assert "2 hosts" in (one.reason or "")
    assert "none of them" in (only(compare(log, replace(H100, node="c"))).reason or "")


def narrow(snapshot: Snapshot, index: int) -> Snapshot:
    gpus = list(snapshot.gpus)
    link = gpus[index].pcie
    assert link is not None
    gpus[index] = replace(gpus[index], pcie=replace(link, width=4, max_width=16))
    return replace(snapshot, gpus=tuple(gpus))


def test_a_link_that_lost_lanes_is_a_shortfall_that_its_check_explains() -> None:
    node = narrow(H100, 3)
    log = read(logs.nvbandwidth(H100, {}, 390.0, host=13.5))
    comparison = compare(log, node)
    hosts = {one.gpus[0].index: one for one in comparison.figures if one.figure.kind is Kind.HOST}
    assert hosts[3].verdict is Verdict.FAIL
    assert hosts[3].checks[0] == "PCI-001"
    assert hosts[3].now is not None
    assert hosts[3].now.low == pytest.approx(13.7, abs=0.05)
    # The others are as slow, and that GPU 3 lost lanes does not explain it.
    assert "PCI-001" not in hosts[0].checks
    (finding,) = comparison.explanations[0].findings
    assert (finding.observed, finding.expected) == ("x4", "x16")


def test_inactive_nvlinks_explain_a_slow_pair_and_a_slow_set() -> None:
    assert H100.nvlinks is not None
    down = tuple(
        replace(link, is_active=False) if link.gpu == 5 and link.link < 6 else link
        for link in H100.nvlinks
    )
    node = replace(H100, nvlinks=down)
    comparison = compare(read(logs.nccl_tests(H100, range(8), 300.0)), node)
    assert only(comparison).verdict is Verdict.FAIL
    assert "NVL-001" in only(comparison).checks
    found = compare(read(logs.nvbandwidth(H100, {(0, 5): 250.0, (1, 2): 250.0}, 390.0)), node)
    slow = {
        tuple(gpu.index for gpu in one.gpus): one.checks
        for one in found.figures
        if one.verdict is Verdict.FAIL
    }
    assert "NVL-001" in slow[0, 5]
    assert "NVL-001" not in slow[1, 2]


def test_acs_and_a_slow_port_explain_rdma() -> None:
    assert H100.bridges is not None
    assert H100.hcas is not None
    bridges = tuple(replace(bridge, acs_control=0x1D) for bridge in H100.bridges)
    log = read(logs.perftest("mlx5_0", 150.0, gpu=str(H100.gpus[0].pci)[5:10]))
    one = only(compare(log, replace(H100, bridges=bridges)))
    assert (one.verdict, "PCI-005" in one.checks) == (Verdict.FAIL, True)
    hca = H100.hcas[0]
    slow = replace(hca, ports=tuple(replace(port, rate_gbps=200.0) for port in hca.ports))
    one = only(compare(log, replace(H100, hcas=(slow, *H100.hcas[1:]))))
    assert one.expected.low == 47.5  # as the others of its type
    assert one.now is not None
    assert one.now.low == 23.75
    assert "RDM-004" in one.checks


def test_a_sound_node_explains_nothing_and_is_not_asked_where_all_passes() -> None:
    low = compare(read(logs.nccl_tests(H100, range(8), 320.0)), H100)
    assert low.explanations == ()
    assert low.report is not None
    assert compare(read(logs.nccl_tests(H100, range(8), 478.0)), H100).report is None


def test_what_a_check_could_not_read_is_named_and_is_no_pass() -> None:
    gpus = tuple(replace(gpu, pcie=None) for gpu in H100.gpus)
    comparison = compare(
        read(logs.nccl_tests(H100, range(8), 320.0)), replace(H100, gpus=gpus, bridges=None)
    )
    assert comparison.report is not None
    assert any("PCI-001" in inputs.checks for inputs in comparison.report.missing)


def test_a_bandwidth_table_takes_the_place_of_the_model() -> None:
    measured = Measured(sets={frozenset(range(8)): 3250})
    for busbw, verdict in ((325.0, Verdict.PASS), (300.0, Verdict.WARN), (290.0, Verdict.FAIL)):
        log = read(logs.nccl_tests(H100, range(8), busbw))
        one = only(compare(log, H100, measured=measured, table="t.yaml"))
        assert (one.verdict, one.expected.source) == (verdict, "t.yaml")


def test_every_code_that_may_explain_is_a_check() -> None:
    codes = {rule.code for rule in node_rules()}
    assert {code for of_kind in EXPLAIN.values() for code in of_kind} <= codes
    assert set(NETWORK) <= codes
    assert EXPLAIN.keys() == set(Kind)
