"""What is reported of the devices that are offered."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.offer_notices import OfferNotices
from nodetopo.deviceplugin.hand_over import HandOver
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.model.notice import Notice
from nodetopo.topology.neighbours import NOBODY, ServedByDra
from tests.components.gpus.test_registration_loop import REGISTERED
from tests.kernel.running import kernel_of

PROBLEM = "no libcuda.so.580.95.05 was found — set driver-root"
HALF = ServedByDra(gpus={"GPU-1": "gpu.nvidia.com"})


def all_of(notices: Iterable[Iterable[Notice]]) -> list[Notice]:
    return list(chain.from_iterable(notices))


def test_a_problem_of_the_specification_is_reported_once_and_its_end_too() -> None:
    offer = OfferNotices()
    found = all_of(offer.of_cdi(problem) for problem in (None, PROBLEM, PROBLEM, None, None))
    assert [(notice.reason, notice.is_warning) for notice in found] == [
        ("CdiNotWritten", True),
        ("CdiWritten", False),
    ]
    assert found[0].message == PROBLEM


def test_another_problem_of_the_specification_is_reported_as_well() -> None:
    offer = OfferNotices()
    found = all_of(offer.of_cdi(problem) for problem in (PROBLEM, "another"))
    assert [notice.message for notice in found] == [PROBLEM, "another"]


def test_what_others_take_is_reported_by_resource_and_so_is_its_end() -> None:
    offer = OfferNotices()
    taken = replace(REGISTERED, unlisted="the kubelet lists none", siblings=("a.sock", "b.sock"))
    states = (REGISTERED, taken, taken, REGISTERED)
    found = all_of(offer.of_plugins({"nvidia.com/gpu": state}) for state in states)
    assert [(notice.reason, notice.is_warning, notice.key) for notice in found] == [
        ("NotListed", True, "nvidia.com/gpu"),
        ("AnotherInstance", True, "nvidia.com/gpu"),
        ("ListedAgain", False, "nvidia.com/gpu"),
        ("OnlyInstance", False, "nvidia.com/gpu"),
    ]
    assert "by the sockets a.sock, b.sock: run one" in found[1].message


def test_stepping_back_and_coming_back_are_reported_once() -> None:
    offer = OfferNotices()
    found = all_of(offer.of_dra(now) for now in (NOBODY, HALF, HALF, NOBODY, NOBODY))
    assert [notice.reason for notice in found] == ["GpusServedByDra", "GpusOfferedAgain"]
    assert "gpu.nvidia.com" in found[0].message


@pytest.mark.parametrize("problem", [None, "no way hands GPUs to containers"])
def test_a_change_of_the_hand_over_is_reported_and_so_is_a_node_without_a_way(
    problem: str | None,
) -> None:
    offer = OfferNotices()
    first = HandOver(strategy=Strategy.CDI_CRI, reason="a specification")
    assert all_of(offer.of_hand_over(first) for _ in range(2)) == []
    changed = HandOver(strategy=Strategy.ENVVAR, reason="x", problem=problem)
    (notice,) = offer.of_hand_over(changed)
    assert notice.reason == ("HandOverChanged" if problem is None else "NoHandOver")
    assert notice.is_warning == (problem is not None)


def test_a_node_without_a_way_is_reported_at_the_start() -> None:
    chosen = HandOver(strategy=Strategy.CDI_CRI, reason="x", problem="no way")
    assert [notice.reason for notice in OfferNotices().of_hand_over(chosen)] == ["NoHandOver"]


def test_notices_are_lines_of_the_log_by_their_weight(tmp_path: Path) -> None:
    offer, kernel = OfferNotices(), kernel_of(tmp_path)
    with capture_logs() as lines:
        for problem in (PROBLEM, None):
            kernel.report(offer.of_cdi(problem))
    assert [(line["log_level"], line["reason"]) for line in lines] == [
        ("warning", "CdiNotWritten"),
        ("info", "CdiWritten"),
    ]
