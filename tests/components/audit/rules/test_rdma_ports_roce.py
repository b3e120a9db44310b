"""The rules on RoCE: addresses that can be routed, and interfaces that carry whole packets."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.hca import Gid, Hca, HcaKind, HcaPort, LinkLayer
from nodetopo.model.pci import PciFunction
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result

LOCAL = "fe80:0000:0000:0000:a088:c2ff:fe03:0000"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a08:0001"
PORT = "mlx5_3 port 1"
"""Of HGX H200: the first of its fastest."""


def with_hca(change: Callable[[Hca], Hca]) -> Snapshot:
    whole = healthy("hgx-h200")
    hcas = (change(hca) if hca.name == "mlx5_3" else hca for hca in whole.hcas or ())
    return replace(whole, hcas=tuple(hcas))


def gids(*found: tuple[str, str | None]) -> Callable[[Hca], Hca]:
    def change(hca: Hca) -> Hca:
        table = tuple(
            Gid(index=index, gid=gid, type=kind) for index, (gid, kind) in enumerate(found)
        )
        return replace(hca, ports=(replace(hca.ports[0], gids=table),))

    return change


def mtu(size: int | None) -> Callable[[Hca], Hca]:
    return lambda hca: replace(
        hca, netdevs=tuple(replace(netdev, mtu=size) for netdev in hca.netdevs)
    )


@pytest.mark.parametrize("code", ["RDM-007", "RDM-008"])
@pytest.mark.parametrize("name", ["hgx-h200"])
def test_a_sound_roce_node_passes(code: str, name: str) -> None:
    found = result(code, healthy(name))
    assert (found.verdict, found.skipped, found.missing) == (Verdict.PASS, None, ())


@pytest.mark.parametrize(
    ("table", "observed"),
    [
        ((), "no GID"),
        (((LOCAL, "IB/RoCE v1"), (LOCAL, "RoCE v2")), "only link-local GIDs"),
        (((LOCAL, "IB/RoCE v1"), (IPV4, "IB/RoCE v1")), "only IB/RoCE v1"),
    ],
)
def test_a_port_without_a_routable_address_is_a_warning(
    table: tuple[tuple[str, str], ...], observed: str
) -> None:
    found = result("RDM-007", with_hca(gids(*table)))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject=PORT,
                observed=observed,
                expected="a RoCE v2 GID of an IPv4 or a routable IPv6 address",
            ),
        ),
    )


def test_a_gid_of_unknown_type_leaves_the_port_unknown() -> None:
    found = result("RDM-007", with_hca(gids((IPV4, None))))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, (f"GID types of {PORT}",))


@pytest.mark.parametrize(("size", "verdict"), [(4191, Verdict.WARN), (4192, Verdict.PASS)])
def test_an_interface_must_carry_the_greatest_packet_with_its_headers(
    size: int, verdict: Verdict
) -> None:
    assert result("RDM-008", with_hca(mtu(size))).verdict is verdict


def test_a_small_interface_is_named() -> None:
    (finding,) = result("RDM-008", with_hca(mtu(1500))).findings
    assert finding == Finding(
        subject=f"{PORT}, interface enp103s0np0",
        observed="MTU 1500",
        expected="4192 or more",
    )


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (mtu(None), "MTU of enp103s0np0"),
        (lambda hca: replace(hca, netdevs=()), f"MTU of {PORT}"),
    ],
)
def test_an_unread_size_is_unknown(change: Callable[[Hca], Hca], missing: str) -> None:
    assert result("RDM-008", with_hca(change)).missing == (missing,)


@pytest.mark.parametrize("code", ["RDM-007", "RDM-008"])
def test_a_function_whose_parts_serve_the_jobs_needs_no_address(code: str) -> None:
    bare = with_hca(lambda hca: mtu(1500)(gids()(hca)))
    parent = next(hca.pci for hca in bare.hcas or () if hca.name == "mlx5_3")
    part = Hca(
        name="mlx5_90",
        kind=HcaKind.VIRTUAL,
        parent=parent,
        ports=(HcaPort(number=1, state="ACTIVE", layer=LinkLayer.ETHERNET),),
    )
    divided = replace(bare, hcas=(*(bare.hcas or ()), part))
    assert result(code, divided).verdict is Verdict.PASS


@pytest.mark.parametrize("code", ["RDM-007", "RDM-008"])
def test_infiniband_needs_neither(code: str) -> None:
    reason = "no active RoCE port that serves jobs on this node itself"
    assert result(code, healthy()).skipped == reason


def test_a_port_of_unknown_layer_is_unknown_unless_it_is_amazons() -> None:
    def silent(hca: Hca) -> Hca:
        return replace(hca, ports=(replace(hca.ports[0], layer=None),))

    efa = with_hca(lambda hca: replace(silent(hca), function=PciFunction(driver="efa")))
    assert result("RDM-007", with_hca(silent)).missing == (f"link layer of {PORT}",)
    assert result("RDM-007", efa).verdict is Verdict.PASS
