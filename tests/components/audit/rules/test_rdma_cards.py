"""RDM-012 to RDM-016: HCAs open to programs, alike, and shared out among the GPUs."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.hca import Hca, HcaKind, LinkLayer
from nodetopo.model.pci import PciFunction
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.audit.judge import healthy, result

FIRST = "mlx5_0 0000:18:00.0"
GPU0 = "GPU0 0000:1b:00.0"


def changed(change: Callable[[Hca], Hca], *names: str, machine: str = "dgx-h100") -> Snapshot:
    """Return a good node with *change* done to the HCAs of these names."""
    whole = healthy(machine)
    return replace(
        whole,
        hcas=tuple(change(hca) if hca.name in names else hca for hca in whole.hcas or ()),
    )


def ports(**facts: object) -> Callable[[Hca], Hca]:
    return lambda hca: replace(
        hca,
        ports=tuple(replace(port, **facts) for port in hca.ports),  # by name
    )


def observed(code: str, snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(one.subject, one.observed) for one in result(code, snapshot).findings]


def efa(hca: Hca) -> Hca:
    return replace(hca, function=PciFunction(driver="efa"), board_id=None, firmware=None)


def all_of(change: Callable[[Hca], Hca], machine: str = "dgx-h100") -> Snapshot:
    whole = healthy(machine)
    return replace(whole, hcas=tuple(map(change, whole.hcas or ())))


# RDM-012


def without_manager(modules: tuple[str, ...] | None) -> Snapshot:
    whole = healthy()
    host = replace(whole.host, infiniband_devices=("uverbs0",))  # type: ignore[type-var] # there
    return replace(whole, host=host, kernel=Kernel(modules=modules))


def test_without_its_device_no_program_connects_by_address() -> None:
    found = result("RDM-012", without_manager(("mlx5_ib",)))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject="/dev/infiniband/rdma_cm",
                observed="the module rdma_ucm is not loaded",
                expected="a device node, which the kernel module rdma_ucm makes",
            ),
        ),
    )


@pytest.mark.parametrize("modules", [None, ("rdma_ucm",)], ids=["unread", "loaded"])
def test_a_module_that_may_be_loaded_is_not_blamed(modules: tuple[str, ...] | None) -> None:
    assert observed("RDM-012", without_manager(modules)) == [
        ("/dev/infiniband/rdma_cm", "not there")
    ]


def test_an_empty_directory_is_what_the_agent_does_not_see() -> None:
    whole = healthy()
    host = replace(whole.host, infiniband_devices=())  # type: ignore[type-var] # there
    assert result("RDM-012", replace(whole, host=host)).missing == ("/dev/infiniband",)


def test_efa_has_no_connection_manager() -> None:
    assert result("RDM-012", all_of(efa)).skipped == "EFA, which has no connection manager"


# RDM-013


def test_an_infiniband_hca_without_umad_is_a_remark() -> None:
    bare = changed(lambda hca: replace(hca, char_devices=("uverbs0",)), "mlx5_0")
    assert observed("RDM-013", bare) == [(FIRST, "no umad device")]
    assert result("RDM-013", bare).verdict is Verdict.PASS


def test_what_speaks_roce_needs_no_umad() -> None:
    bare = all_of(lambda hca: replace(hca, char_devices=("uverbs0",)), "hgx-h200")
    assert result("RDM-013", bare).skipped == "no InfiniBand HCA"


def test_text_names_no_devices_and_an_unread_layer_leaves_it_open() -> None:
    text = changed(lambda hca: replace(hca, char_devices=(), kind=None), "mlx5_0")
    assert result("RDM-013", text).missing == ("umad devices of mlx5_0",)
    assert result("RDM-013", changed(ports(layer=None), "mlx5_0")).missing == (
        "link layer of mlx5_0",
    )


# RDM-014


def test_a_card_with_other_firmware_than_most_of_its_model_is_a_warning() -> None:
    older = changed(lambda hca: replace(hca, firmware="28.9.1002"), "mlx5_0")
    found = result("RDM-014", older)
    assert (found.verdict, [it.subject for it in found.findings]) == (Verdict.WARN, [FIRST])
    assert found.findings[0].expected == "28.39.1002, as its peers of the same model have"


def test_of_two_releases_equally_many_the_newest_is_right_by_number() -> None:
    half = changed(lambda hca: replace(hca, firmware="28.9.1002"), *(f"mlx5_{n}" for n in range(4)))
    assert [name for name, _ in observed("RDM-014", half)] == [
        hca.name + f" {hca.pci}" for hca in (half.hcas or ())[:4]
    ]


def test_models_are_apart_and_parts_of_cards_do_not_count() -> None:
    other = replace(healthy("dgx-a100").hcas[0], name="x", firmware="1.0.0")  # type: ignore[index]
    whole = healthy()
    assert observed("RDM-014", replace(whole, hcas=(*(whole.hcas or ()), other))) == []
    part = replace((whole.hcas or ())[0], name="v", firmware="1.0.0", kind=HcaKind.VIRTUAL)
    assert observed("RDM-014", replace(whole, hcas=(*(whole.hcas or ()), part))) == []


def test_an_unread_release_is_named() -> None:
    silent = changed(lambda hca: replace(hca, firmware=None), "mlx5_0")
    assert result("RDM-014", silent).missing == ("firmware release of mlx5_0",)
    assert result("RDM-014", all_of(efa)).skipped == "no two HCAs of one model"


# RDM-015


def test_a_card_that_came_back_as_the_other_kind_is_a_warning() -> None:
    found = result("RDM-015", changed(ports(layer=LinkLayer.ETHERNET), "mlx5_0"))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject=GPU0,
                observed="nearest is mlx5_0, Ethernet",
                expected="InfiniBand, as the nearest of 7 other GPUs",
            ),
        ),
    )


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-2", "gb200-nvl72"])
def test_storage_of_another_protocol_farther_away_or_slower_is_no_fault(name: str) -> None:
    assert result("RDM-015", healthy(name)).verdict is Verdict.PASS


def test_a_layer_or_a_place_that_is_not_known_leaves_the_protocol_open() -> None:
    assert result("RDM-015", changed(ports(layer=None), "mlx5_0")).missing == (
        "link layer of mlx5_0",
    )
    lost = all_of(lambda hca: replace(hca, path=None, pci=None, numa_node=None))
    assert result("RDM-015", lost).missing[0].startswith("distance to the HCAs of GPU0")


# RDM-016


def test_a_slower_card_costs_its_gpu_and_so_all() -> None:
    slow = changed(ports(rate_gbps=200.0), "mlx5_0")
    found = result("RDM-016", slow)
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject=GPU0,
                observed="200 Gb/s: mlx5_0",
                expected="400 Gb/s, as GPU1 has",
            ),
        ),
    )


def test_gpus_that_share_an_hca_because_another_is_missing_have_half() -> None:
    whole = healthy("dgx-1v")
    less = replace(whole, hcas=tuple(it for it in whole.hcas or () if it.name != "mlx5_0"))
    assert result("RDM-016", whole).verdict is Verdict.PASS  # two GPUs to each HCA
    found = [(name.split()[0], text) for name, text in observed("RDM-016", less)]
    assert found == [(f"GPU{gpu}", "25 Gb/s: mlx5_1 for 4 GPUs") for gpu in range(4)]


def test_a_gpu_far_from_every_hca_is_another_rules() -> None:
    assert result("RDM-016", healthy("hgx-a100-4")).verdict is Verdict.PASS
    assert result("RDM-016", healthy("gb200-nvl72")).verdict is Verdict.PASS


def test_the_rate_of_a_port_that_is_down_is_not_known() -> None:
    down = changed(ports(state="DOWN"), "mlx5_0")
    assert result("RDM-016", down).missing == ("rate of mlx5_0",)


def test_a_virtual_machine_shows_no_shares() -> None:
    assert result("RDM-016", healthy("h100-vm-8")).skipped == "a virtual machine"


# RDM-001


def test_a_port_that_waits_for_a_subnet_manager_says_so() -> None:
    waiting = changed(ports(state="INIT", physical_state="LinkUp"), "mlx5_0")
    text = "INIT, LinkUp: no subnet manager has set it up"
    assert observed("RDM-001", waiting) == [("mlx5_0 port 1", text)]
    down = changed(ports(state="DOWN", physical_state="Polling"), "mlx5_0")
    assert observed("RDM-001", down) == [("mlx5_0 port 1", "DOWN, Polling")]
