"""The rules on what NVLinks need to be of use: the fabric, peer access, channels, no repairs."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.gpu import ConfidentialCompute, Fabric, FabricState, Mig, NvidiaDriver
from nodetopo.model.nvlink import P2pStatus, PeerAccess, ReportedPair
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, healthy, result, with_gpu

JOINED = Fabric(state=FabricState.COMPLETED, status=0, clique_id=0)
DENIED = PeerAccess(read=P2pStatus.OK, nvlink=P2pStatus.TOPOLOGY_NOT_SUPPORTED)


def with_fabric(fabric: Fabric | None) -> Snapshot:
    return with_gpu(healthy(), 2, lambda gpu: replace(gpu, fabric=fabric))


def with_pair(change: Callable[[ReportedPair], ReportedPair]) -> Snapshot:
    whole = healthy()
    return replace(whole, pairs=(change(whole.pairs[0]), *whole.pairs[1:]))


def without_links(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, nvlinks=(), nvswitches=())


@pytest.mark.parametrize(
    ("fabric", "observed"),
    [
        (Fabric(state=FabricState.IN_PROGRESS), "registration in-progress"),
        (Fabric(state=FabricState.NOT_STARTED), "registration not-started"),
        (replace(JOINED, status=15), "registration failed with nvmlReturn_t 15"),
        (replace(JOINED, health_mask=1), "bandwidth degraded"),
        (
            replace(JOINED, health_mask=1 << 2 | 1 << 4 | 1 << 6 | 4 << 8),
            (
                "route recovery under way, route unhealthy, access timeout recovery under way, "
                "configuration: no partition"
            ),
        ),
    ],
)
def test_a_gpu_outside_the_fabric_fails(fabric: Fabric, observed: str) -> None:
    found = result("NVL-004", with_fabric(fabric))
    assert (found.verdict, found.findings) == (
        Verdict.FAIL,
        (
            Finding(
                subject="GPU2 0000:52:00.0",
                observed=observed,
                expected="registration completed, and sound",
            ),
        ),
    )


@pytest.mark.parametrize(
    "fabric",
    [
        replace(JOINED, health_mask=2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8),  # all told, all well
        replace(JOINED, health_mask=0),  # nothing told
        Fabric(state=FabricState.NOT_SUPPORTED),
    ],
)
def test_a_fabric_that_reports_no_trouble_passes(fabric: Fabric) -> None:
    assert result("NVL-004", with_fabric(fabric)).verdict is Verdict.PASS


def test_an_h100_behind_switches_that_tells_no_fabric_is_unknown() -> None:
    assert result("NVL-004", with_fabric(None)).missing == ("fabric state of GPU2",)


def _dead(name: str, fabric: Fabric | None) -> Snapshot:
    """Return a machine whose links are all down and whose switches do not show on PCI."""
    whole = healthy(name)
    links = (
        replace(link, is_active=False, peer=None, peer_kind=None) for link in whole.nvlinks or ()
    )
    gpus = tuple(replace(gpu, fabric=fabric) for gpu in whole.gpus)
    return replace(whole, gpus=gpus, nvlinks=tuple(links), nvswitches=())


@pytest.mark.parametrize("name", ["hgx-b200", "h100-vm-8"])
@pytest.mark.parametrize(
    ("fabric", "observed"),
    [
        (Fabric(state=FabricState.IN_PROGRESS), "registration in-progress"),
        (Fabric(state=FabricState.NOT_STARTED), "registration not-started"),
        (replace(JOINED, status=15), "registration failed with nvmlReturn_t 15"),
        (replace(JOINED, health_mask=5 << 8), "configuration: too few NVLinks"),
    ],
)
def test_a_registration_is_evidence_though_no_link_and_no_switch_shows(
    name: str, fabric: Fabric, observed: str
) -> None:
    found = result("NVL-004", _dead(name, fabric))
    assert found.verdict is Verdict.FAIL
    assert [finding.observed for finding in found.findings] == [observed] * 8


def test_one_gpu_alone_that_has_not_registered_fails_as_well() -> None:
    whole = _dead("h100-vm-8", Fabric(state=FabricState.IN_PROGRESS))
    alone = replace(whole, gpus=whole.gpus[:1], nvlinks=())
    assert len(result("NVL-004", alone).findings) == 1
    off = Fabric(state=FabricState.NOT_SUPPORTED)  # as NVreg_NvLinkDisable makes it
    gpu = replace(alone.gpus[0], fabric=off)
    assert result("NVL-004", replace(alone, gpus=(gpu,))).skipped == "no NVSwitch"


def test_gpus_in_mig_mode_need_no_registration() -> None:
    whole = _dead("h100-vm-8", Fabric(state=FabricState.IN_PROGRESS))
    gpus = tuple(replace(gpu, mig=Mig(is_enabled=True)) for gpu in whole.gpus)
    assert result("NVL-004", replace(whole, gpus=gpus)).skipped == "no NVSwitch"


def test_dead_modules_of_a_driver_that_reports_no_fabric_are_unknown() -> None:
    found = result("NVL-004", _dead("hgx-b200", None))
    names = ", ".join(f"GPU{index}" for index in range(8))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, (f"fabric state of {names}",))


def test_dead_modules_that_are_joined_directly_are_not_behind_switches() -> None:
    direct = _dead("hgx-b200", Fabric(state=FabricState.NOT_SUPPORTED))
    assert result("NVL-004", direct).skipped == "no NVSwitch"


def test_a_fabric_manager_is_missed_where_only_the_registration_shows_switches() -> None:
    dead = _dead("hgx-b200", Fabric(state=FabricState.IN_PROGRESS))
    stopped = replace(dead, host=replace(HOST, fabric_manager=False))
    assert result("NVL-006", stopped).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dgx-a100", "these GPUs do not register with a fabric"),
        ("h200-nvl-4", "no NVSwitch"),
        ("l40s-pcie-4", "these GPUs do not register with a fabric"),
    ],
)
def test_machines_without_registration_are_passed_over(name: str, reason: str) -> None:
    assert result("NVL-004", healthy(name)).skipped == reason


@pytest.mark.parametrize("code", ["NVL-003", "NVL-004", "NVL-005", "NVL-006", "NVL-007"])
def test_modules_that_list_no_links_leave_the_rules_unknown(code: str) -> None:
    silent = replace(without_links(healthy()), host=HOST)
    found = result(code, silent)
    assert (found.verdict, found.missing[0]) == (
        Verdict.UNKNOWN,
        "NVLinks of GPU0, GPU1, GPU2, GPU3, GPU4, GPU5, GPU6, GPU7",
    )


@pytest.mark.parametrize("code", ["NVL-001", "NVL-002"])
def test_modules_of_a_mesh_that_list_no_links_are_unknown_too(code: str) -> None:
    assert result(code, without_links(healthy("hgx-a100-4"))).missing[0] == (
        "NVLinks of GPU0, GPU1, GPU2, GPU3"
    )


@pytest.mark.parametrize("code", ["NVL-001", "NVL-002"])
def test_a_module_in_mig_mode_may_list_no_links(code: str) -> None:
    whole = with_gpu(healthy(), 0, lambda gpu: replace(gpu, mig=Mig(is_enabled=True)))
    rest = tuple(link for link in whole.nvlinks or () if link.gpu != 0)
    assert result(code, replace(whole, nvlinks=rest)).verdict is Verdict.PASS


def test_recoveries_of_a_link_are_counted() -> None:
    whole = healthy()
    first, *rest = whole.nvlinks or ()
    found = result("NVL-003", replace(whole, nvlinks=(replace(first, recoveries=3), *rest)))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (Finding(subject="GPU0 link 0", observed="3 recoveries from errors", expected="none"),),
    )


def test_links_that_count_nothing_leave_their_gpu_unknown() -> None:
    whole = healthy()
    first, *rest = whole.nvlinks or ()
    found = result("NVL-003", replace(whole, nvlinks=(replace(first, recoveries=None), *rest)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("recoveries of the NVLinks of GPU0",),
    )


def test_peer_access_that_the_driver_denies_over_nvlink_fails() -> None:
    found = result("NVL-005", with_pair(lambda pair: replace(pair, backward=DENIED)))
    assert (found.verdict, found.findings) == (
        Verdict.FAIL,
        (
            Finding(
                subject="GPU0 and GPU1",
                observed="topology-not-supported",
                expected="peer access over NVLink",
            ),
        ),
    )


def test_a_pair_of_which_nvml_tells_one_way_is_unknown() -> None:
    found = result("NVL-005", with_pair(lambda pair: replace(pair, backward=None)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("peer access of GPU0 and GPU1",),
    )


def test_gpus_in_mig_mode_need_no_peer_access() -> None:
    denied = with_pair(lambda pair: replace(pair, forward=DENIED, backward=DENIED))
    split = with_gpu(denied, 0, lambda gpu: replace(gpu, mig=Mig(is_enabled=True)))
    assert result("NVL-005", split).verdict is Verdict.PASS


def test_pairs_of_a_mesh_without_a_link_need_no_peer_access() -> None:
    found = result("NVL-005", healthy("dgx-1v"))  # GPU0 and GPU5 share no link
    assert (found.verdict, found.skipped) == (Verdict.PASS, None)


def test_confidential_computing_turns_peer_access_off_on_purpose() -> None:
    secret = replace(healthy(), confidential_compute=ConfidentialCompute(is_enabled=True))
    assert result("NVL-005", secret).skipped == "confidential computing"


def test_a_fabric_manager_that_does_not_run_fails() -> None:
    host = replace(HOST, fabric_manager=False)
    found = result("NVL-006", replace(healthy(), host=host))
    assert (found.verdict, found.findings) == (
        Verdict.FAIL,
        (Finding(subject="nv-fabricmanager", observed="does not run", expected="runs"),),
    )


@pytest.mark.parametrize("host", [None, replace(HOST, fabric_manager=None)])
def test_programs_that_cannot_be_seen_are_unknown(host: None) -> None:
    found = result("NVL-006", replace(healthy(), host=host))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("whether nv-fabricmanager runs",),
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gb200-nvl72", "the NVSwitches of this fabric are not in the node"),
        ("h100-vm-8", "a virtual machine, whose host runs the fabric"),
        ("dgx-1v", "no NVSwitch"),
    ],
)
def test_a_fabric_that_others_run_needs_no_manager_here(name: str, reason: str) -> None:
    quiet = replace(healthy(name), host=replace(HOST, fabric_manager=False))
    assert result("NVL-006", quiet).skipped == reason


@pytest.mark.parametrize("state", [None, FabricState.IN_PROGRESS])
def test_a_tray_of_a_rack_that_has_not_joined_needs_no_manager_either(
    state: FabricState | None,
) -> None:
    whole = healthy("gb200-nvl72")
    fabric = None if state is None else Fabric(state=state)
    gpus = tuple(replace(gpu, fabric=fabric) for gpu in whole.gpus)
    tray = replace(whole, gpus=gpus, host=replace(HOST, fabric_manager=False))
    assert result("NVL-006", tray).skipped == ("the NVSwitches of this fabric are not in the node")


def test_no_imex_channel_is_a_remark_where_nvlink_joins_nodes() -> None:
    tray = replace(healthy("gb200-nvl72"), nvidia=NvidiaDriver(imex_channels=()))
    found = result("NVL-007", tray)
    assert (found.verdict, [it.observed for it in found.findings]) == (
        Verdict.PASS,
        ["no channel"],
    )
    assert result("NVL-007", healthy()).skipped == "no multi-node NVLink"


def test_a_board_that_names_a_cluster_is_judged_as_the_single_node_that_it_is() -> None:
    named = replace(JOINED, cluster_uuid="6b0e1b2c-0000-4000-8000-000000000072")
    host = replace(HOST, fabric_manager=False)
    board = replace(healthy(), host=host, nvidia=NvidiaDriver(imex_channels=()))
    board = replace(board, gpus=tuple(replace(gpu, fabric=named) for gpu in board.gpus))
    assert result("NVL-006", board).verdict is Verdict.FAIL
    assert result("NVL-007", board).skipped == "no multi-node NVLink"
