"""Ports of RDMA devices: states, rates, addresses and error counters."""

import re
from pathlib import Path

import pytest

from nodetopo.model.hca import Gid, HcaPort, LinkLayer
from nodetopo.probes.sysfs.pcie import PciTree
from nodetopo.probes.sysfs.rdma import read_rdma
from tests.probes.sysfs.rdma_host import IB, ROCE, RdmaHost, Refusals

GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    """A `/sys` with an empty PCI bus."""
    return RdmaHost(tmp_path)


@pytest.fixture
def hca(host: RdmaHost) -> str:
    """The place of one RDMA device."""
    return host.hca("mlx5_0", host.function("41"))


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    """What is refused from now on; nothing until its *ends* are set."""
    return Refusals(monkeypatch)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("1: DOWN", "DOWN"),
        ("2: INIT", "INIT"),
        ("3: ARMED", "ARMED"),
        ("4: ACTIVE", "ACTIVE"),
        ("5: ACTIVE_DEFER", "ACTIVE_DEFER"),
        ("9: UNKNOWN", None),
        ("-1: UNKNOWN", None),
    ],
)
def test_the_word_of_a_port_state_is_kept(
    host: RdmaHost,
    hca: str,
    text: str,
    state: str | None,
) -> None:
    host.port(hca, 1, {**IB, "state": text})
    assert host.only().ports[0].state == state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("2: Polling", "Polling"),
        ("3: Disabled", "Disabled"),
        ("4: PortConfigurationTraining", "PortConfigurationTraining"),
        ("7: Phy Test", "Phy Test"),
        ("0: <unknown>", None),
    ],
)
def test_the_word_of_a_physical_state_is_kept(
    host: RdmaHost,
    hca: str,
    text: str,
    state: str | None,
) -> None:
    host.port(hca, 1, {**IB, "phys_state": text})
    assert host.only().ports[0].physical_state == state


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("2.5 Gb/sec (1X)", 2.5),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("40 Gb/sec (4X QDR)", 40.0),
        ("56 Gb/sec (4X FDR)", 56.0),
        ("100 Gb/sec (4X EDR)", 100.0),
        ("400 Gb/sec (4X NDR)", 400.0),
        ("800 Gb/sec (4X XDR)", 800.0),
    ],
)
def test_a_rate_is_in_gigabits_per_second(
    host: RdmaHost,
    hca: str,
    text: str,
    rate: float,
) -> None:
    host.port(hca, 1, {**IB, "rate": text})
    assert host.only().ports[0].rate_gbps == rate


def test_a_rate_that_the_driver_refuses_is_an_issue(
    host: RdmaHost,
    hca: str,
    refusals: Refusals,
) -> None:
    host.port(hca, 1, IB)
    refusals.ends = ("/rate",)
    reading = host.read()
    assert reading.hcas is not None
    assert (reading.hcas[0].ports[0].rate_gbps, reading.hcas[0].ports[0].state) == (None, "ACTIVE")
    assert [(issue.subject, issue.reason) for issue in reading.issues] == [
        ("class/infiniband/mlx5_0/ports/1/rate", "EINVAL: Invalid argument"),
    ]


def test_what_is_not_understood_is_an_issue_and_costs_one_field(host: RdmaHost, hca: str) -> None:
    host.port(hca, 1, {"state": "on", "rate": "fast", "link_layer": "?", "lid": "x"})
    host.gid(hca, 1, 0, "nonsense")
    host.gid(hca, 1, 3, GID, types="RoCE v9", ndevs="a/b")
    reading = host.read()
    assert reading.hcas is not None
    assert reading.hcas[0].ports == (HcaPort(number=1, gids=(Gid(index=3, gid=GID),)),)
    place = "class/infiniband/mlx5_0/ports/1"
    assert [(issue.subject, issue.reason) for issue in reading.issues] == [
        (f"{place}/gid_attrs/ndevs/3", "not the name of an interface: 'a/b'"),
        (f"{place}/gid_attrs/types/3", "not a GID type that we know: 'RoCE v9'"),
        (f"{place}/gids/0", "not a GID: 'nonsense'"),
        (f"{place}/lid", "not a LID: 'x'"),
        (f"{place}/link_layer", "not a link layer that we know: '?'"),
        (f"{place}/rate", "not understood: 'fast'"),
        (f"{place}/state", "not understood: 'on'"),
    ]


def test_a_device_of_neither_layer_has_none_and_no_issue(host: RdmaHost, hca: str) -> None:
    host.port(hca, 1, {**IB, "link_layer": "Unknown"})
    assert host.only().ports[0].layer is None


def test_ports_are_ordered_by_number_and_may_be_down(host: RdmaHost, hca: str) -> None:
    host.port(hca, 10, IB)
    host.port(hca, 2, {**ROCE, "state": "1: DOWN", "phys_state": "3: Disabled"})
    ports = host.only().ports
    assert [(port.number, port.state, port.layer) for port in ports] == [
        (2, "DOWN", LinkLayer.ETHERNET),
        (10, "ACTIVE", LinkLayer.INFINIBAND),
    ]


def test_ethernet_has_no_lid_and_infiniband_has_zero_before_a_subnet_manager(
    host: RdmaHost,
    hca: str,
) -> None:
    for number, files in ((1, ROCE), (2, IB)):
        host.port(hca, number, {**files, "lid": "0x0", "sm_lid": "0x0"})
    ports = host.only().ports
    assert [(port.lid, port.sm_lid) for port in ports] == [(None, None), (0, 0)]


def test_the_gids_that_are_set_are_kept_by_index(host: RdmaHost, hca: str) -> None:
    host.port(hca, 1, ROCE)
    zeros = "0000:0000:0000:0000"
    local = "fe80:0000:0000:0000:a288:c2ff:fe00:0001"
    host.gid(hca, 1, 10, GID, types="RoCE v2", ndevs="eth0.7")
    host.gid(hca, 1, 2, local, types="IB/RoCE v1", ndevs="eth0")
    host.gid(hca, 1, 3, f"{zeros}:{zeros}", ndevs="eth9")
    host.gid(hca, 1, 4, f"fe80:0000:0000:0000:{zeros}", ndevs="eth9")
    assert host.only().ports[0].gids == (
        Gid(index=2, gid=local, type="IB/RoCE v1", netdev="eth0"),
        Gid(index=10, gid=GID, type="RoCE v2", netdev="eth0.7"),
    )


def test_a_gid_whose_interface_is_in_another_namespace_has_no_type_and_no_issue(
    host: RdmaHost,
    hca: str,
    refusals: Refusals,
) -> None:
    host.port(hca, 1, ROCE)
    host.gid(hca, 1, 0, GID, types="RoCE v2", ndevs="eth0")
    refusals.ends = ("/types/0", "/ndevs/0")
    assert host.only().ports[0].gids == (Gid(index=0, gid=GID),)


@pytest.mark.parametrize("name", ["..", ".", "../../x", "two words", "sixteen-letters-"])
def test_what_cannot_name_an_interface_leads_nowhere(host: RdmaHost, hca: str, name: str) -> None:
    host.port(hca, 1, ROCE)
    host.gid(hca, 1, 0, GID, ndevs=name)
    reading = host.read()
    assert reading.hcas is not None
    assert (reading.hcas[0].ports[0].gids, reading.hcas[0].netdevs) == (
        (Gid(index=0, gid=GID),),
        (),
    )
    assert [issue.reason for issue in reading.issues] == [
        f"not the name of an interface: {name!r}",
    ]


def test_counters_are_read_on_request_only(host: RdmaHost, hca: str) -> None:
    host.port(hca, 1, IB)
    host.write(f"{hca}/ports/1/counters", {"symbol_error": "0", "link_downed": "2"})
    host.write(f"{hca}/ports/1/hw_counters", {"out_of_sequence": "18446744073709551615"})
    assert host.only().ports[0].counters is None
    assert host.only(counters=True).ports[0].counters == {
        "link_downed": 2,
        "out_of_sequence": 2**64 - 1,
        "symbol_error": 0,
    }


def test_traffic_is_no_error_and_no_answer_is_no_count(host: RdmaHost, hca: str) -> None:
    host.port(hca, 1, IB)
    host.write(f"{hca}/ports/1/counters", {"port_xmit_data": "5", "symbol_error": "N/A (no PMA)"})
    host.write(f"{hca}/ports/1/hw_counters", {"lifespan": "10"})
    assert host.only(counters=True).ports[0].counters == {}


def test_a_refused_counter_is_left_out_without_an_issue(
    host: RdmaHost,
    hca: str,
    refusals: Refusals,
) -> None:
    host.port(hca, 1, IB)
    host.write(f"{hca}/ports/1/counters", {"symbol_error": "1", "link_downed": "2"})
    refusals.ends = ("/symbol_error",)
    reading = read_rdma(host.sysfs, PciTree(host.sysfs), counters=True)
    assert reading.hcas is not None
    assert (reading.hcas[0].ports[0].counters, reading.issues) == ({"link_downed": 2}, ())
    assert len(refusals.asked) == 1


def test_the_words_of_real_captures_are_understood(corpus: Path, host: RdmaHost, hca: str) -> None:
    text = "\n".join(path.read_text("utf-8") for path in (corpus / "ib").glob("ibstatus*.txt"))
    states = re.findall(r"^\s*state:\s+(.*)$", text, re.MULTILINE)
    physical = re.findall(r"^\s*phys state:\s+(.*)$", text, re.MULTILINE)
    rates = re.findall(r"^\s*rate:\s+(.*)$", text, re.MULTILINE)
    layers = re.findall(r"^\s*link_layer:\s+(.*)$", text, re.MULTILINE)
    found = zip(states, physical, rates, layers, strict=True)
    for number, (state, phys_state, rate, layer) in enumerate(found, 1):
        files = {"state": state, "phys_state": phys_state, "rate": rate, "link_layer": layer}
        host.port(hca, number, files)
    seen = {(port.state, port.physical_state, port.rate_gbps) for port in host.only().ports}
    assert seen == {("ACTIVE", "LinkUp", 200.0), ("ACTIVE", "LinkUp", 40.0)}
