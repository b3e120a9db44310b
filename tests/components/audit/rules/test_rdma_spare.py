"""Ports that may be down or bare: parts of others, spare ones, Amazon's, those of a bond."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.hca import Hca, HcaKind, NetDevice
from nodetopo.model.pci import PciFunction
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result

DOWN = "DOWN"


def changed(name: str, hca_name: str, change: Callable[[Hca], Hca]) -> Snapshot:
    whole = healthy(name)
    hcas = (change(hca) if hca.name == hca_name else hca for hca in whole.hcas or ())
    return replace(whole, hcas=tuple(hcas))


def down(hca: Hca) -> Hca:
    return replace(hca, ports=tuple(replace(port, state=DOWN) for port in hca.ports))


@pytest.mark.parametrize("kind", [HcaKind.VIRTUAL, HcaKind.SUBFUNCTION, HcaKind.SOFTWARE])
def test_a_part_that_no_job_uses_now_may_be_down(kind: HcaKind) -> None:
    part = changed("dgx-h100", "mlx5_2", lambda hca: replace(down(hca), kind=kind))
    assert result("RDM-001", part).verdict is Verdict.PASS


def test_the_second_port_of_a_card_away_from_the_gpus_may_be_free() -> None:
    spare = changed("gb200-nvl72", "mlx5_3", down)
    assert result("RDM-001", spare).verdict is Verdict.PASS


def test_a_card_with_all_its_ports_down_is_found() -> None:
    whole = healthy("gb200-nvl72")
    hcas = (down(hca) if hca.name in ("mlx5_2", "mlx5_3") else hca for hca in whole.hcas or ())
    found = result("RDM-001", replace(whole, hcas=tuple(hcas)))
    assert [one.subject for one in found.findings] == ["mlx5_2 port 1", "mlx5_3 port 1"]


def test_ports_of_a_card_behind_a_switch_with_a_gpu_are_all_found() -> None:
    whole = healthy("dgx-h100")
    first = next(hca for hca in whole.hcas or () if hca.name == "mlx5_2")
    second = down(replace(first, name="mlx5_90"))
    found = result("RDM-001", replace(whole, hcas=(*(whole.hcas or ()), second)))
    assert [one.subject for one in found.findings] == ["mlx5_90 port 1"]


def test_the_second_port_of_one_device_may_be_free_too() -> None:
    def with_second(hca: Hca) -> Hca:
        return replace(hca, ports=(*hca.ports, replace(hca.ports[0], number=2, state=DOWN)))

    assert result("RDM-001", changed("gb200-nvl72", "mlx5_2", with_second)).findings == ()


def test_amazons_adapters_count_no_errors_of_a_link() -> None:
    def efa(hca: Hca) -> Hca:
        bare = tuple(replace(port, counters={}) for port in hca.ports)
        return replace(hca, ports=bare, function=PciFunction(driver="efa"))

    whole = healthy("dgx-h100")
    mixed = changed("dgx-h100", "mlx5_2", efa)
    only = replace(whole, hcas=tuple(map(efa, whole.hcas or ())))
    assert result("RDM-006", mixed).verdict is Verdict.PASS
    assert result("RDM-006", only).skipped == "EFA, which counts no errors of its link"


def test_an_interface_below_a_bond_leaves_the_address_to_it() -> None:
    def enslaved(hca: Hca) -> Hca:
        below = NetDevice(name="ens1f1np1", port=1, mtu=9000, master="bond0")
        ports = tuple(replace(port, gids=()) for port in hca.ports)
        return replace(hca, netdevs=(below,), ports=ports)

    backup = changed("hgx-h200", "mlx5_3", enslaved)
    assert result("RDM-007", backup).verdict is Verdict.PASS


def test_a_bond_itself_needs_an_address() -> None:
    def bare(hca: Hca) -> Hca:
        ports = tuple(replace(port, gids=(), rate_gbps=400) for port in hca.ports)
        netdevs = tuple(one for one in hca.netdevs if one.master is not None)
        return replace(hca, ports=ports, netdevs=netdevs)

    found = result("RDM-007", changed("hgx-h200", "mlx5_bond_0", bare))
    assert [one.subject for one in found.findings] == ["mlx5_bond_0 port 1"]


@pytest.mark.parametrize("code", ["RDM-007", "RDM-008"])
@pytest.mark.parametrize(("rate", "verdict"), [(25.0, Verdict.PASS), (None, Verdict.WARN)])
def test_a_port_for_management_needs_no_rdma_settings(
    code: str, rate: float | None, verdict: Verdict
) -> None:
    def bare(hca: Hca) -> Hca:
        ports = tuple(replace(port, gids=(), rate_gbps=rate) for port in hca.ports)
        netdevs = tuple(replace(one, mtu=1500) for one in hca.netdevs)
        return replace(hca, ports=ports, netdevs=netdevs)

    assert result(code, changed("hgx-h200", "mlx5_2", bare)).verdict is verdict
