"""What the two ends of an NVLink connection tell differently is said, not smoothed over."""

import pytest
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.nvml.links import uneven
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import Supervise
from tests.probes.nvml.nvml_pair import ANSWERS

GPUS = tuple(Gpu(index=index, pci=PciAddress(0, 0x10 + index, 0, 0)) for index in range(3))
SWITCH = PciAddress(0, 0x40, 0, 0)


def _link(gpu: int, link: int, peer: int, peer_link: int | None = None) -> NvLink:
    return NvLink(
        gpu=gpu,
        link=link,
        is_active=True,
        peer=GPUS[peer].pci,
        peer_kind=PeerKind.GPU,
        peer_link=peer_link,
    )


def _down(gpu: int, link: int) -> NvLink:
    return NvLink(gpu=gpu, link=link, is_active=False)


def _switched(gpu: int, links: int) -> list[NvLink]:
    # Some drivers name the switch, others hide it.
    return [
        NvLink(
            gpu=gpu,
            link=n,
            is_active=True,
            peer=SWITCH if n % 2 else None,
            peer_kind=PeerKind.SWITCH,
        )
        for n in range(links)
    ]


def _issue(subject: str, reason: str) -> ProbeIssue:
    return ProbeIssue(probe="nvml", subject=subject, reason=reason)


def test_even_links_are_no_issue() -> None:
    direct = [_link(0, 0, 1, 5), _link(1, 5, 0, 0), _down(0, 1), _down(1, 1)]
    assert uneven(direct, GPUS) == ()
    assert uneven([*_switched(0, 18), *_switched(1, 18)], GPUS) == ()
    assert uneven((), GPUS) == ()


def test_links_lead_to_their_own_gpu() -> None:
    links = [_link(0, 0, 0), _link(0, 1, 0), _link(1, 0, 1)]
    assert uneven(links, GPUS) == (
        _issue("GPU0 NVLink", "links up whose far end is the GPU itself: 2"),
        _issue("GPU1 NVLink", "links up whose far end is the GPU itself: 1"),
    )


def test_a_pair_counts_different_numbers() -> None:
    links = [_link(0, 0, 1), _link(0, 1, 1), _link(1, 0, 0), _down(1, 1), _link(2, 0, 1)]
    assert uneven(links, GPUS) == (
        _issue("GPU0 GPU1 NVLink", "links up between them: 2 by GPU0, 1 by GPU1"),
        _issue("GPU1 GPU2 NVLink", "links up between them: 0 by GPU1, 1 by GPU2"),
    )


def test_a_link_is_down_at_one_end_and_up_at_the_other() -> None:
    links = [_link(0, 4, 1, 2), _down(1, 2), _link(0, 5, 1, 3), _link(1, 3, 0, 5)]
    assert uneven(links, GPUS) == (
        _issue("GPU1 NVLink 2", "down here, up at its far end, NVLink 4 of GPU0"),
        _issue("GPU0 GPU1 NVLink", "links up between them: 2 by GPU0, 1 by GPU1"),
    )


def test_a_gpu_has_fewer_links_to_the_switches_than_another() -> None:
    links = [*_switched(0, 18), *_switched(1, 17), _down(1, 17), _down(2, 0)]
    assert uneven(links, GPUS) == (
        _issue("GPU1 NVLink", "links up to the NVSwitches: 17, other GPUs have 18"),
        _issue("GPU2 NVLink", "links up to the NVSwitches: 0, other GPUs have 18"),
    )


@pytest.mark.parametrize(
    "found",
    [
        [_link(0, 0, 1)],  # GPU1 was refused the question about all of its links
        [_link(0, 0, 1), replace(_down(1, 0), is_active=None)],
        [*_switched(0, 4), replace(_down(1, 0), is_active=None)],
    ],
)
def test_a_gpu_that_did_not_tell_all_is_not_judged(found: list[NvLink]) -> None:
    assert uneven(found, GPUS) == ()


def test_a_lost_gpu_is_not_judged() -> None:
    lost = (GPUS[0], replace(GPUS[1], is_lost=True))
    assert uneven([_link(0, 0, 1), _down(1, 0)], lost) == ()


def test_a_reading_has_these_issues(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    nvml_fake.answer(
        ANSWERS.replace("nvmlDeviceGetNvLinkState 1 1 = 0 0", "nvmlDeviceGetNvLinkState 1 1 = 0 1")
        + "nvmlDeviceGetNvLinkRemotePciInfo_v2 1 1 = 0 00000000:10:00.0\n"
        + "nvmlDeviceGetNvLinkRemoteDeviceType 1 1 = 0 0\n"
        + "nvmlDeviceGetFieldValue 1 146 1 = 0 1\n"
    )
    assert nvml_supervise().scan().issues == (
        _issue("GPU0 NVLink 1", "down here, up at its far end, NVLink 1 of GPU1"),
        _issue("GPU0 GPU1 NVLink", "links up between them: 1 by GPU0, 2 by GPU1"),
    )


INACTIVE = "".join(
    f"nvmlDeviceGetNvLinkState {gpu} {link} = 0 0\n" for gpu in range(2) for link in range(4, 18)
)
"""What some libraries answer for links that the product lacks; the pair has links 0, 1 and 3."""


def _numbers(links: tuple[NvLink, ...] | None) -> list[tuple[int, int]]:
    return [(link.gpu, link.link) for link in links or ()]


def test_links_that_the_product_lacks_are_not_read(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    nvml_fake.answer(ANSWERS + INACTIVE)
    links = nvml_supervise().scan().nvlinks
    assert _numbers(links) == [(gpu, link) for gpu in range(2) for link in (0, 1, 3)]


@pytest.mark.parametrize("code", ["2", "3"])
def test_a_driver_that_does_not_know_how_many_links_there_are_is_asked_for_all_that_can_be(
    code: str, nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    uncounted = ANSWERS.replace(" 91 = 0 3", f" 91 = {code}") + INACTIVE
    nvml_fake.answer(uncounted)
    reading = nvml_supervise().scan()
    assert reading.issues == ()
    # An A100 has 12 links at most; of an architecture that is not known nothing is overlooked.
    assert _numbers(reading.nvlinks) == [
        (gpu, link) for gpu in range(2) for link in (0, 1, *range(3, 12))
    ]
    nvml_fake.answer(uncounted.replace("Architecture 1 = 0 7", "Architecture 1 = 0 99"))
    links = nvml_supervise().scan().nvlinks
    assert [link for gpu, link in _numbers(links) if gpu == 1] == [0, 1, *range(3, 18)]


def test_a_count_of_links_that_are_up_hides_no_dead_ones(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    dead = ANSWERS.replace(" 91 = 0 3", " 91 = 0 0")
    for link in (0, 3):
        dead = dead.replace(f"NvLinkState 0 {link} = 0 1", f"NvLinkState 0 {link} = 0 0")
    nvml_fake.answer(dead + "nvmlDeviceGetNvLinkState 0 2 = 0 0\n")
    links = nvml_supervise().scan().nvlinks or ()
    assert [(link.link, link.is_active) for link in links if link.gpu == 0] == [
        (number, False) for number in range(4)
    ]


def test_a_gpu_has_as_many_links_as_others_of_its_product(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    fewer = ANSWERS.replace("FieldValue 1 91 = 0 3", "FieldValue 1 91 = 0 2")
    nvml_fake.answer(fewer.replace("NvLinkState 1 3 = 0 1", "NvLinkState 1 3 = 0 0"))
    links = nvml_supervise().scan().nvlinks
    assert _numbers(links) == [(gpu, link) for gpu in range(2) for link in (0, 1, 3)]
    nvml_fake.answer(
        fewer.replace("nvmlDeviceGetName 1 = 0 NVIDIA A100", "nvmlDeviceGetName 1 = 0 X")
    )
    links = nvml_supervise().scan().nvlinks
    assert _numbers(links) == [(0, 0), (0, 1), (0, 3), (1, 0), (1, 1)]


def test_a_counted_link_whose_state_fails_is_kept_though_it_is_the_last(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    nvml_fake.answer(ANSWERS.replace("NvLinkState 1 3 = 0 1", "NvLinkState 1 3 = 999"))
    assert (nvml_supervise().scan().nvlinks or ())[-1] == NvLink(
        gpu=1, link=3, is_active=None, version=3
    )


@pytest.mark.parametrize(("architecture", "recoveries"), [("7", 2), ("10", 6)])
def test_recoveries_are_counted_by_the_field_of_the_generation(
    architecture: str, recoveries: int, nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    nvml_fake.answer(ANSWERS.replace("Architecture 0 = 0 7", f"Architecture 0 = 0 {architecture}"))
    links = nvml_supervise().scan().nvlinks or ()
    assert [link.recoveries for link in links if link.gpu == 0] == [recoveries, None, None]
