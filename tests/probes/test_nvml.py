"""What is read through the real pynvml from the fake library, whole, spoilt and old."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import NvmlUnavailable
from agent.machines.bundled import machine
from agent.model.codec import decode, from_plain, to_plain
from agent.model.gpu import Fabric, FabricState, Gpu
from agent.model.nvlink import NvLink, PeerKind
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.nvml import NvmlReading, with_last_known
from agent.probes.nvml_links import with_what_gpus_tell
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import Supervise
from tests.probes.nvml_pair import ANSWERS, CLUSTER, READING

NODES = sorted((Path(__file__).parents[1] / "nodes").glob("*/nvml.txt"))


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
    nvml_fake.answer(
        f"{ANSWERS}nvmlDeviceGetNvLinkState 1 4 = 2\nnvmlDeviceGetNvLinkState 1 5 = 999\n",
    )
    assert nvml_supervise().scan() == replace(
        READING,
        issues=(_issue("GPU1 nvmlDeviceGetNvLinkState link 5", "Unknown Error"),),
    )


def test_links_are_unknown_when_no_gpu_lets_us_ask(
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
        .replace("nvmlDeviceGetP2PStatus 0 1 2 = 0 0", "nvmlDeviceGetP2PStatus 0 1 2 = 0 77"),
    )
    assert nvml_supervise().scan() == replace(
        READING,
        gpus=(replace(READING.gpus[0], architecture=None), READING.gpus[1]),
        pairs=(),
        issues=(
            _issue("GPU0 nvmlDeviceGetArchitecture", "unusable answer: unknown architecture 99"),
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
        if line.startswith("nvmlDevice") and "Count" not in line and "CpuAffinity" not in line
    ]
    nvml_fake.fail(*(f"garbage {call}" for call in sorted({*calls})))
    reading = nvml_supervise().scan()
    affinity = reading.gpus[0].cpu_affinity
    assert (reading.gpus, reading.nvlinks, reading.pairs) == (
        (Gpu(index=0, cpu_affinity=affinity), Gpu(index=1, cpu_affinity=affinity)),
        None,
        (),
    )


@pytest.mark.usefixtures("nvml_fake")
def test_an_old_library_costs_only_what_it_lacks(
    nvml_supervise: Supervise,
    nvml_cache: Path,
) -> None:
    old = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid=CLUSTER, clique_id=7)
    assert nvml_supervise(library(nvml_cache, without_newer=True)).scan() == replace(
        READING,
        gpus=tuple(replace(gpu, fabric=old, remapped_rows=None) for gpu in READING.gpus),
        nvlinks=tuple(
            link if link.peer_kind is PeerKind.GPU else replace(link, peer_kind=None)
            for link in READING.nvlinks or ()
        ),
    )


def test_a_board_without_a_multi_node_fabric_has_no_cluster(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.answer(ANSWERS.replace(CLUSTER, "00000000-0000-0000-0000-000000000000"))
    fabric = nvml_supervise().scan().gpus[0].fabric
    assert fabric is not None
    assert fabric.cluster_uuid is None


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


@pytest.mark.parametrize("answers", NODES, ids=[path.parent.name for path in NODES])
def test_a_composed_machine_is_read_without_an_issue(
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
    answers: Path,
) -> None:
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(answers.parent))
    reading = nvml_supervise().scan()
    assert (reading.issues, all(gpu.uuid for gpu in reading.gpus)) == ((), True)


@pytest.mark.parametrize("answers", NODES, ids=[path.parent.name for path in NODES])
def test_a_composed_machine_says_the_same_as_its_snapshot(
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
    answers: Path,
) -> None:
    snapshot = answers.with_name("snapshot.json")
    if not snapshot.exists():
        pytest.skip("no snapshot.json beside it")
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(answers.parent))
    assert nvml_supervise().scan() == _nvml_part(decode(snapshot.read_text()).snapshot)


def test_the_bundled_nvswitch_machine_is_what_its_answers_say(
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = Path(__file__).parents[1] / "nodes" / "h100x8-nvswitch-2numa-8cx7"
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(directory))
    assert nvml_supervise().scan() == _nvml_part(machine("dgx-h100"))


def _nvml_part(snapshot: Snapshot) -> NvmlReading:
    """Return *snapshot* without what sysfs tells of its GPUs."""
    return NvmlReading(
        driver_version=snapshot.driver_version,
        nvml_version=snapshot.nvml_version,
        cuda_version=snapshot.cuda_version,
        gpus=tuple(
            replace(gpu, path=None, numa_node=None, numa_affinity=None, pci_class=None)
            for gpu in snapshot.gpus
        ),
        nvlinks=snapshot.nvlinks,
        pairs=snapshot.pairs,
    )


def test_the_architecture_outranks_what_a_link_says_of_its_generation() -> None:
    # H100 drivers were seen to report 5.0, whose links would be twice as fast.
    hopper = Gpu(index=0, architecture="hopper")
    unknown = Gpu(index=1, architecture=None)
    found = (
        NvLink(gpu=0, link=0, is_active=True, version=5),
        NvLink(gpu=1, link=0, is_active=True, version=5),
    )
    assert [link.version for link in with_what_gpus_tell(found, (hopper, unknown))] == [4, 5]
