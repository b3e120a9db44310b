"""The rules on HCAs beside port states: links, rates, distances, errors, device nodes."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.hca import Hca, HcaKind, HcaPort
from nodetopo.model.pci import PcieLink, PciFunction
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, healthy, result

NAME = "mlx5_0 0000:18:00.0"


def with_first(change: Callable[[Hca], Hca], name: str = "dgx-h100") -> Snapshot:
    whole = healthy(name)
    first, *rest = whole.hcas or ()
    return replace(whole, hcas=(change(first), *rest))


def function(**facts: object) -> Callable[[Hca], Hca]:
    return lambda hca: replace(
        hca,
        function=replace(hca.function or PciFunction(), **facts),  # by name
    )


def port(**facts: object) -> Callable[[Hca], Hca]:
    def change(hca: Hca) -> Hca:
        ports: tuple[HcaPort, ...] = tuple(
            replace(it, **facts)  # by name
            for it in hca.ports
        )
        return replace(hca, ports=ports)

    return change


def link(generation: int, width: int) -> Callable[[Hca], Hca]:
    return function(
        link=PcieLink(generation=generation, width=width, max_generation=5, max_width=16)
    )


@pytest.mark.parametrize(("generation", "width"), [(4, 16), (5, 8)])
def test_a_link_below_what_both_ends_can_is_a_warning(generation: int, width: int) -> None:
    found = result("RDM-003", with_first(link(generation, width)))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (Finding(subject=NAME, observed=f"Gen{generation} x{width}", expected="Gen5 x16"),),
    )


def test_a_slot_of_an_older_generation_is_no_fault_of_the_link() -> None:
    older = with_first(link(4, 16))
    slots = tuple(
        replace(bridge, link=PcieLink(max_generation=4, max_width=16))
        for bridge in older.bridges or ()
    )
    assert result("RDM-003", replace(older, bridges=slots)).verdict is Verdict.PASS


@pytest.mark.parametrize("kind", [HcaKind.VIRTUAL, HcaKind.SUBFUNCTION, HcaKind.SOFTWARE])
def test_parts_and_software_have_no_link_of_their_own(kind: HcaKind) -> None:
    part = with_first(lambda hca: replace(link(1, 1)(hca), kind=kind))
    assert result("RDM-003", part).verdict is Verdict.PASS


def test_an_unread_link_is_unknown() -> None:
    assert result("RDM-003", with_first(function(link=None))).missing == ("PCIe link of mlx5_0",)


def test_a_port_slower_than_its_peers_is_a_warning() -> None:
    found = result("RDM-004", with_first(port(rate_gbps=200.0)))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject="mlx5_0 port 1",
                observed="200 Gb/s",
                expected="400 Gb/s, as its peers of the same model have",
            ),
        ),
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda hca: replace(port(rate_gbps=200.0)(hca), board_id="MT_0000000892"),
        lambda hca: replace(port(rate_gbps=200.0)(hca), kind=HcaKind.VIRTUAL),
        port(rate_gbps=40.0, state="DOWN"),  # what RDM-001 finds
    ],
)
def test_other_models_parts_and_dead_ports_are_no_peers(change: Callable[[Hca], Hca]) -> None:
    assert result("RDM-004", with_first(change)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (port(rate_gbps=None), "rate of mlx5_0 port 1"),
        (port(state=None), "port states of mlx5_0"),
        (lambda hca: replace(hca, board_id=None, function=None), "model of mlx5_0"),
    ],
)
def test_ports_that_cannot_be_compared_are_unknown(
    change: Callable[[Hca], Hca], missing: str
) -> None:
    assert result("RDM-004", with_first(change)).missing == (missing,)


def test_a_single_hca_has_no_peers() -> None:
    whole = healthy()
    single = replace(whole, hcas=(whole.hcas or ())[:1])
    assert result("RDM-004", single).skipped == "no two active ports of one model"


def test_a_gpu_whose_nearest_hca_is_behind_another_bridge_is_remarked_on() -> None:
    whole = healthy()
    found = result("RDM-005", replace(whole, hcas=(whole.hcas or ())[1:]))
    assert (found.verdict, found.findings) == (
        Verdict.PASS,
        (
            Finding(
                subject="GPU0 0000:1b:00.0",
                observed="nearest is mlx5_1, NODE",
                expected="an HCA at PHB or nearer",
            ),
        ),
    )


def test_a_gpu_on_grace_is_near_the_hcas_of_its_cpu_and_of_no_other() -> None:
    tray = healthy("gb200-nvl72")
    assert result("RDM-005", tray).findings == ()
    others = tuple(hca for hca in tray.hcas or () if hca.numa_node == 1)
    found = result("RDM-005", replace(tray, hcas=others)).findings
    assert [it.subject.split()[0] for it in found] == ["GPU0", "GPU1"]
    assert {(it.observed, it.expected) for it in found} == {
        (f"nearest is {others[0].name}, SYS", "an HCA at NODE or nearer")
    }


def test_a_gpu_of_unknown_distance_is_unknown() -> None:
    whole = healthy()
    lost = tuple(replace(gpu, path=None, numa_node=None) for gpu in whole.gpus[:1])
    found = result("RDM-005", replace(whole, gpus=(*lost, *whole.gpus[1:])))
    assert found.missing == ("distance to the HCAs of GPU0",)


def test_counted_errors_are_a_remark_and_congestion_is_none() -> None:
    counters = {"symbol_error": 7, "link_downed": 1, "port_xmit_discards": 900, "rx_drops": 5}
    found = result("RDM-006", with_first(port(counters=counters)))
    assert (found.verdict, found.findings) == (
        Verdict.PASS,
        (
            Finding(
                subject="mlx5_0 port 1",
                observed="link_downed 1, symbol_error 7",
                expected="none since the port came up",
            ),
        ),
    )


@pytest.mark.parametrize("counters", [None, {}, {"out_of_sequence": 3}])
def test_a_port_without_link_counters_is_unknown(counters: dict[str, int] | None) -> None:
    found = result("RDM-006", with_first(port(counters=counters)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("error counters of mlx5_0 port 1",),
    )


def test_an_hca_that_the_verbs_module_does_not_serve_fails() -> None:
    found = result("RDM-009", with_first(lambda hca: replace(hca, char_devices=("umad0",))))
    assert (found.verdict, [it.observed for it in found.findings]) == (
        Verdict.FAIL,
        ["no uverbs device"],
    )


def test_a_missing_device_node_fails() -> None:
    nodes = tuple(f"uverbs{number}" for number in range(1, 8))
    found = result("RDM-009", replace(healthy(), host=replace(HOST, infiniband_devices=nodes)))
    assert [(it.subject, it.observed) for it in found.findings] == [
        (NAME, "no /dev/infiniband/uverbs0")
    ]


@pytest.mark.parametrize("host", [None, HOST, replace(HOST, infiniband_devices=())])
def test_device_nodes_that_the_agent_cannot_see_are_unknown(host: None) -> None:
    found = result("RDM-009", replace(healthy(), host=host))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("/dev/infiniband",))


@pytest.mark.parametrize(
    ("code", "change", "observed"),
    [
        ("RDM-010", function(relaxed_ordering=False), "relaxed ordering off"),
        ("RDM-011", function(max_read_request=512), "512 bytes"),
    ],
)
def test_how_an_hca_uses_the_bus_is_a_remark(
    code: str, change: Callable[[Hca], Hca], observed: str
) -> None:
    found = result(code, with_first(change))
    assert (found.verdict, [(it.subject, it.observed) for it in found.findings]) == (
        Verdict.PASS,
        [(NAME, observed)],
    )


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("RDM-010", "relaxed ordering (read as root) of mlx5_0"),
        ("RDM-011", "maximum read request (read as root) of mlx5_0"),
    ],
)
def test_what_only_root_can_read_of_an_hca_is_unknown(code: str, missing: str) -> None:
    hidden = function(relaxed_ordering=None, max_read_request=None)
    assert result(code, with_first(hidden)).missing == (missing,)


@pytest.mark.parametrize("code", [f"RDM-{number:03}" for number in range(1, 12)])
def test_software_devices_alone_are_passed_over(code: str) -> None:
    soft = replace(healthy(), hcas=(Hca(name="rxe0", kind=HcaKind.SOFTWARE),))
    assert result(code, soft).skipped == "no RDMA device"
