"""What is read through the real pynvml from the fake library, whole, spoilt and old."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.errors import NvmlUnavailable
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import decode
from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import NvLink, P2pStatus, PeerAccess
from nodetopo.model.plain import from_plain, to_plain
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.nvml.record import NvmlReading, with_last_known
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import SHAPES, Supervise
from tests.probes.nvml.nvml_pair import ANSWERS, READING


def _issue(subject: str, reason: str) -> ProbeIssue:
    return ProbeIssue(probe="nvml", subject=subject, reason=reason)


@pytest.mark.usefixtures("nvml_fake")
def test_every_fact_of_a_healthy_machine_is_read(nvml_supervise: Supervise) -> None:
    assert nvml_supervise().scan() == READING


def test_a_reading_survives_the_codec() -> None:
    assert from_plain(NvmlReading, to_plain(READING), []) == READING


def test_a_machine_without_gpus_is_read_as_such(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.answer("nvmlDeviceGetCount_v2 = 0 0\n")
    assert nvml_supervise().scan() == NvmlReading(nvlinks=())


def test_what_the_node_lacks_is_none_without_an_issue(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.answer("nvmlDeviceGetCount_v2 = 0 1\n")
    assert nvml_supervise().scan() == NvmlReading(gpus=(Gpu(index=0),), nvlinks=())


def test_a_lost_gpu_leaves_the_others_whole(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("lost 0")
    assert nvml_supervise().scan() == replace(
        READING,
        gpus=(Gpu(index=0, is_lost=True), READING.gpus[1]),
        nvlinks=tuple(link for link in READING.nvlinks or () if link.gpu == 1),
        pairs=(),
        issues=(_issue("GPU0 nvmlDeviceGetUUID", "GPU is lost"),),
    )


def test_a_gpu_whose_handle_is_gone_is_still_counted_as_lost(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("gone 1")
    reading = nvml_supervise().scan()
    assert reading.gpus == (READING.gpus[0], Gpu(index=1, is_lost=True))


def test_a_gpu_lost_after_a_good_scan_keeps_what_was_known_of_it(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    supervisor = nvml_supervise()
    supervisor.scan()
    nvml_fake.fail("lost 0")
    assert supervisor.scan().gpus == (replace(READING.gpus[0], is_lost=True), READING.gpus[1])


def test_a_gpu_once_lost_stays_lost_for_the_whole_reading(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    # One call for the fields of a link: the first says so, the second fails otherwise.
    nvml_fake.answer(
        ANSWERS.replace("FieldValue 1 164 0 = 0", "FieldValue 1 164 0 = 15").replace(
            "FieldValue 1 146 0 = 0 0", "FieldValue 1 146 0 = 999"
        ),
    )
    assert [gpu.is_lost for gpu in nvml_supervise().scan().gpus] == [False, True]


def test_a_lost_gpu_takes_nothing_over_from_other_hardware() -> None:
    lost = replace(READING, gpus=(Gpu(index=0, is_lost=True), READING.gpus[1]))
    others = tuple(replace(gpu, uuid=f"GPU-other-{gpu.index}") for gpu in READING.gpus)
    assert with_last_known(lost, replace(READING, gpus=others)) == lost


def test_one_failing_call_costs_one_field(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    nvml_fake.answer(
        ANSWERS.replace(
            "nvmlDeviceGetMemoryInfo 1 = 0",
            "nvmlDeviceGetMemoryInfo 1 = 999",
        ),
    )
    assert nvml_supervise().scan() == replace(
        READING,
        gpus=(READING.gpus[0], replace(READING.gpus[1], memory_mib=None)),
        issues=(_issue("GPU1 nvmlDeviceGetMemoryInfo", "Unknown Error"),),
    )


def test_failures_of_many_links_make_one_issue_a_gpu(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("code nvmlDeviceGetNvLinkRemoteDeviceType 999")
    assert nvml_supervise().scan().issues == (
        _issue("GPU0 nvmlDeviceGetNvLinkRemoteDeviceType links 0,3", "Unknown Error"),
        _issue("GPU1 nvmlDeviceGetNvLinkRemoteDeviceType links 0,3", "Unknown Error"),
    )


def test_a_link_whose_state_fails_is_kept_as_unknown(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.answer(
        ANSWERS.replace("nvmlDeviceGetNvLinkState 1 0 = 0 1", "nvmlDeviceGetNvLinkState 1 0 = 999"),
    )
    links = nvml_supervise().scan().nvlinks or ()
    assert links[3] == NvLink(gpu=1, link=0, is_active=None, version=3)


def test_a_number_beyond_the_last_link_is_no_link_however_it_is_refused(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    # Of a driver that does not know how many links there are.
    uncounted = ANSWERS.replace(" 91 = 0 3", " 91 = 2")
    nvml_fake.answer(
        f"{uncounted}nvmlDeviceGetNvLinkState 1 4 = 2\nnvmlDeviceGetNvLinkState 1 5 = 999\n",
    )
    assert nvml_supervise().scan() == replace(
        READING,
        gpus=tuple(replace(gpu, nvlink_count=None) for gpu in READING.gpus),
        issues=(_issue("GPU1 nvmlDeviceGetNvLinkState link 5", "Unknown Error"),),
    )


def test_links_are_unknown_when_every_gpu_refuses_them(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("code nvmlDeviceGetNvLinkState 999")
    assert nvml_supervise().scan().nvlinks is None


def test_values_of_a_newer_driver_become_unknown_fields(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.answer(
        ANSWERS.replace("nvmlDeviceGetArchitecture 0 = 0 7", "nvmlDeviceGetArchitecture 0 = 0 99")
        .replace("nvmlDeviceGetTopologyCommonAncestor 0 1 = 0 20", "")
        .replace("nvmlDeviceGetP2PStatus 0 1 2 = 0 0", "nvmlDeviceGetP2PStatus 0 1 2 = 0 77")
        .replace(
            "nvmlDeviceGetVirtualizationMode 1 = 0 1", "nvmlDeviceGetVirtualizationMode 1 = 0 5"
        )
        .replace("nvmlDeviceGetFieldValue 1 230 = 0 4", "nvmlDeviceGetFieldValue 1 230 = 0 9"),
    )
    forward = PeerAccess(read=P2pStatus.OK, write=P2pStatus.TOPOLOGY_NOT_SUPPORTED)
    assert nvml_supervise().scan() == replace(
        READING,
        gpus=(
            replace(READING.gpus[0], architecture=None),
            replace(READING.gpus[1], virtualization=None, recovery_action=9),
        ),
        pairs=(replace(READING.pairs[0], closeness=None, forward=forward),),
        issues=(
            _issue("GPU0 nvmlDeviceGetArchitecture", "unusable answer: unknown architecture 99"),
            _issue(
                "GPU1 nvmlDeviceGetVirtualizationMode",
                "unusable answer: unknown virtualization mode 5",
            ),
            _issue("GPU0 GPU1 nvmlDeviceGetP2PStatus", "unusable answer: unknown P2P status 77"),
        ),
    )


def test_garbage_from_the_driver_never_becomes_a_fact(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    calls = [
        line.partition(" ")[0]
        for line in ANSWERS.splitlines()
        # Any bits make an affinity mask, and a count of GPUs has its own test.
        if line.startswith("nvml") and "nvmlDeviceGetCount_v2" not in line
    ]
    nvml_fake.fail(*(f"garbage {call}" for call in sorted({*calls})))
    reading = nvml_supervise().scan()
    assert (reading.driver_version, reading.cuda_version, reading.confidential_compute) == (
        None,
        None,
        None,
    )
    assert [replace(gpu, cpu_affinity=None, numa_affinity=None) for gpu in reading.gpus] == [
        Gpu(index=0),
        Gpu(index=1),
    ]
    assert (reading.nvlinks, reading.pairs) == (None, ())


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("code * 999", "NVML does not initialise: Unknown Error"),
        (
            "code nvmlInitWithFlags 18",
            "NVML does not initialise: RM has detected an NVML/RM version mismatch.",
        ),
        ("code nvmlDeviceGetCount_v2 4", "NVML does not count its GPUs: Insufficient Permissions"),
        ("garbage nvmlDeviceGetCount_v2", "NVML claims 2779096485 GPUs"),
        (
            "code nvmlDeviceGetHandleByIndex_v2 999",
            "NVML opens none of its 2 GPUs: Unknown Error",
        ),
    ],
)
def test_a_driver_that_serves_nothing_is_unavailable(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
    fault: str,
    cause: str,
) -> None:
    nvml_fake.fail(fault)
    with pytest.raises(NvmlUnavailable) as caught:
        nvml_supervise().scan()
    assert caught.value.cause == cause


@pytest.mark.parametrize("directory", SHAPES, ids=lambda path: path.name)
def test_the_reading_of_a_composed_machine_matches_its_snapshot(
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
) -> None:
    snapshot = directory / "snapshot.json"
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(directory))
    assert nvml_supervise().scan() == _nvml_part(decode(snapshot.read_text()).snapshot)


def test_the_bundled_nvswitch_machine_matches_its_answers(
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = Path(__file__).parents[2] / "nodes" / "h100x8-nvswitch-2numa-8cx7"
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(directory))
    assert nvml_supervise().scan() == _nvml_part(machine("dgx-h100"))


def _nvml_part(snapshot: Snapshot) -> NvmlReading:
    """Return *snapshot* without what sysfs tells of its GPUs."""
    return NvmlReading(
        driver_version=snapshot.driver_version,
        nvml_version=snapshot.nvml_version,
        cuda_version=snapshot.cuda_version,
        confidential_compute=snapshot.confidential_compute,
        gpus=tuple(replace(gpu, path=None, numa_node=None, function=None) for gpu in snapshot.gpus),
        nvlinks=snapshot.nvlinks,
        pairs=snapshot.pairs,
        issues=tuple(issue for issue in snapshot.issues if issue.probe == "nvml"),
    )
