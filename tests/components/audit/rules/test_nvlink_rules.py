"""The NVLink rules: what breaks them, what leaves them unknown, what is no fault."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.gpu import Mig, NvidiaDriver
from nodetopo.model.nvlink import NvLink
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result, with_gpu


def changed_links(snapshot: Snapshot, change: Callable[[NvLink], NvLink]) -> Snapshot:
    return replace(snapshot, nvlinks=tuple(map(change, snapshot.nvlinks or ())))


def links_at(gpu: int, link: int, is_active: bool | None) -> Callable[[NvLink], NvLink]:
    def change(old: NvLink) -> NvLink:
        return replace(old, is_active=is_active) if (old.gpu, old.link) == (gpu, link) else old

    return change


def test_a_gpu_whose_nvlinks_nvml_refused_to_tell_is_unknown_and_no_fault() -> None:
    whole = healthy()
    rest = tuple(link for link in whole.nvlinks or () if link.gpu != 5)
    issue = ProbeIssue(probe="nvml", subject="GPU5 nvmlDeviceGetNvLinkState", reason="Unknown")
    refused = replace(whole, nvlinks=rest, issues=(issue,))
    verdicts = {code: result(code, refused).missing for code in ("NVL-001", "NVL-002")}
    assert verdicts == dict.fromkeys(verdicts, ("NVLinks of GPU5",))


def test_a_link_that_is_down_and_names_no_far_end_leaves_the_ends_unknown() -> None:
    def cut(link: NvLink) -> NvLink:
        is_it = (link.gpu, link.link) in ((0, 0), (3, 0))
        return replace(link, is_active=False, peer=None, peer_kind=None) if is_it else link

    found = result("NVL-002", changed_links(healthy("dgx-1v"), cut))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("far end of GPU0 link 0, GPU3 link 0",),
    )


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v"])
def test_one_inactive_nvlink_is_named(name: str) -> None:
    down = changed_links(healthy(name), links_at(2, 3, is_active=False))
    assert result("NVL-001", down).findings == (
        Finding(subject="GPU2 link 3", observed="inactive", expected="active"),
    )


def test_an_nvlink_of_unknown_state_leaves_both_rules_unknown() -> None:
    silent = changed_links(healthy(), links_at(2, 3, is_active=None))
    verdicts = {code: result(code, silent).verdict for code in ("NVL-001", "NVL-002")}
    assert verdicts == dict.fromkeys(("NVL-001", "NVL-002"), Verdict.UNKNOWN)


def test_unread_nvlinks_leave_the_rule_unknown() -> None:
    found = result("NVL-001", replace(healthy(), nvlinks=None))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("NVLinks",))


def without_bridges(name: str) -> Snapshot:
    """Return a machine all of whose links are down, as NVML describes such: without a far end."""
    return changed_links(
        healthy(name), lambda link: replace(link, is_active=False, peer=None, peer_kind=None)
    )


@pytest.mark.parametrize("code", ["NVL-001", "NVL-002"])
def test_the_rules_do_not_apply_to_cards_without_a_bridge(code: str) -> None:
    assert result(code, without_bridges("h200-nvl-4")).skipped == "no NVLink bridge"
    cards = healthy("l40s-pcie-4")
    idle = tuple(NvLink(gpu=gpu.index, link=0, is_active=False) for gpu in cards.gpus)
    assert result(code, replace(cards, nvlinks=idle)).skipped == "no NVLink bridge"


def test_cards_of_which_one_gives_no_state_may_have_a_bridge() -> None:
    links = tuple(
        replace(link, is_active=None) if link.gpu == 3 else link
        for link in without_bridges("h200-nvl-4").nvlinks or ()
    )
    silent = result("NVL-001", replace(healthy("h200-nvl-4"), nvlinks=links))
    assert silent.verdict is Verdict.UNKNOWN
    whole = without_bridges("h200-nvl-4")
    issue = ProbeIssue.of_call("GPU3", "nvmlDeviceGetNvLinkState", "Unknown Error")
    rest = tuple(link for link in whole.nvlinks or () if link.gpu != 3)
    refused = result("NVL-001", replace(whole, nvlinks=rest, issues=(issue,)))
    assert refused.missing == ("NVLinks of GPU3",)


@pytest.mark.parametrize("name", ["hgx-b200", "h100-vm-8"])
@pytest.mark.parametrize(
    "evidence",
    [
        {},  # all that a driver of today says
        {"fabric": None},
        {"module_id": None},
        {"module_id": None, "product": "NVIDIA X900"},  # which registers with a fabric
        {"module_id": None, "fabric": None},  # whose name is known
    ],
    ids=["all", "module", "fabric", "fabric-alone", "name-alone"],
)
def test_modules_whose_links_are_all_down_fail_without_any_switch(
    name: str, evidence: Mapping[str, Any]
) -> None:
    whole = without_bridges(name)
    gpus = tuple(replace(gpu, **evidence) for gpu in whole.gpus)
    found = result("NVL-001", replace(whole, gpus=gpus, nvswitches=()))
    assert (found.verdict, len(found.findings)) == (Verdict.FAIL, 144)


@pytest.mark.parametrize("code", ["NVL-001", "NVL-002"])
def test_one_module_alone_whose_links_are_down_is_not_judged(code: str) -> None:
    whole = without_bridges("h100-vm-8")
    alone = replace(
        whole,
        gpus=whole.gpus[:1],
        nvlinks=tuple(link for link in whole.nvlinks or () if link.gpu == 0),
    )
    assert result(code, alone).skipped == "no NVLink in use"
    assert result(code, replace(alone, nvlinks=())).skipped == "no NVLink"


def test_links_that_the_driver_was_told_to_leave_alone_are_not_missed() -> None:
    off = NvidiaDriver(parameters={"NvLinkDisable": "1"})
    modules = replace(healthy("h100-vm-8"), nvlinks=(), nvidia=off)
    assert result("NVL-001", modules).skipped == "no NVLink"


def test_a_card_without_links_beside_bridged_ones_is_unknown() -> None:
    cards = healthy("l40s-pcie-4")
    pair = (
        NvLink(gpu=0, link=0, is_active=True, peer=cards.gpus[1].pci),
        NvLink(gpu=1, link=0, is_active=True, peer=cards.gpus[0].pci),
        NvLink(gpu=2, link=0, is_active=False),
    )
    found = result("NVL-001", replace(cards, nvlinks=pair))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("whether GPU2 should be bridged",),
    )


def test_a_module_whose_links_are_all_down_fails_though_no_far_end_is_named() -> None:
    dead = changed_links(
        healthy("dgx-1v"),
        lambda link: replace(link, is_active=False, peer=None, peer_kind=None),
    )
    assert len(result("NVL-001", dead).findings) == 48


def test_a_gpu_that_lists_no_links_beside_nvswitches_fails() -> None:
    whole = healthy()
    rest = tuple(link for link in whole.nvlinks or () if link.gpu != 5)
    assert [it.subject for it in result("NVL-001", replace(whole, nvlinks=rest)).findings] == [
        "GPU5 0000:c3:00.0"
    ]


def test_a_link_that_one_end_calls_down_makes_the_ends_disagree() -> None:
    half = changed_links(healthy("dgx-1v"), links_at(0, 0, is_active=False))
    assert result("NVL-002", half).findings == (
        Finding(
            subject="GPU0 and GPU3",
            observed="1 up at GPU0, 2 up at GPU3",
            expected="2 at both",
        ),
    )


def test_a_link_that_both_ends_call_down_is_found_too() -> None:
    ends = ((0, 5), (2, 4))  # GPU0's only link to GPU2
    cut = changed_links(
        healthy("dgx-1v"),
        lambda link: replace(link, is_active=(link.gpu, link.link) not in ends),
    )
    assert [finding.subject for finding in result("NVL-002", cut).findings] == ["GPU0 and GPU2"]


def test_a_gpu_with_fewer_switch_links_than_its_peers_is_named() -> None:
    slow = changed_links(healthy(), links_at(4, 0, is_active=False))
    (finding,) = result("NVL-002", slow).findings
    assert (finding.observed, finding.expected) == (
        "17 links to NVSwitches up",
        "18, as many as its peers have",
    )


def _in_mig_mode(machine: str) -> Snapshot:
    """Return *machine* with its second GPU divided."""
    return with_gpu(healthy(machine), 1, lambda gpu: replace(gpu, mig=Mig(is_enabled=True)))


def _silent(_link: NvLink) -> tuple[NvLink, ...]:
    return ()


def _down(link: NvLink) -> tuple[NvLink, ...]:
    return (replace(link, is_active=False),)


def _dead(link: NvLink) -> tuple[NvLink, ...]:
    return (replace(link, is_active=False, peer=None, peer_kind=None),)


@pytest.mark.parametrize("code", ["NVL-001", "NVL-002"])
@pytest.mark.parametrize("name", ["hgx-a100-4", "dgx-h100"])
@pytest.mark.parametrize("told", [_silent, _down, _dead])
def test_a_gpu_in_mig_mode_uses_no_link_and_misses_none(
    code: str, name: str, told: Callable[[NvLink], tuple[NvLink, ...]]
) -> None:
    divided = _in_mig_mode(name)
    links = (
        each
        for link in divided.nvlinks or ()
        for each in (told(link) if link.gpu == 1 else (link,))
    )
    found = result(code, replace(divided, nvlinks=tuple(links)))
    assert (found.verdict, found.findings) == (Verdict.PASS, ())


def test_a_link_to_a_gpu_in_mig_mode_may_be_down() -> None:
    divided = _in_mig_mode("hgx-a100-4")
    there = divided.gpus[1].pci
    links = (
        replace(link, is_active=False) if link.peer == there else link
        for link in divided.nvlinks or ()
    )
    snapshot = replace(divided, nvlinks=tuple(links))
    assert result("NVL-001", snapshot).verdict is Verdict.PASS
    assert result("NVL-001", replace(snapshot, gpus=healthy("hgx-a100-4").gpus)).findings != ()
