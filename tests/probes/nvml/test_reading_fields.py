"""Single facts that NVML tells in its own way, and libraries that lack some of them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.model.gpu import C2c, Fabric, FabricState, Gpu
from nodetopo.model.nvlink import PeerKind
from nodetopo.model.probe_issue import ProbeIssue
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import Supervise
from tests.probes.nvml.nvml_pair import ANSWERS, CLUSTER, MIG_INSTANCES, READING


def _issue(subject: str, reason: str) -> ProbeIssue:
    return ProbeIssue(probe="nvml", subject=subject, reason=reason)


@pytest.mark.usefixtures("nvml_fake")
def test_an_old_library_costs_only_what_it_lacks(
    nvml_supervise: Supervise,
    nvml_cache: Path,
) -> None:
    old = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid=CLUSTER, clique_id=7)
    assert nvml_supervise(library(nvml_cache, without_newer=True)).scan() == replace(
        READING,
        confidential_compute=None,
        gpus=tuple(_as_of_old(replace(gpu, fabric=old)) for gpu in READING.gpus),
        nvlinks=tuple(
            link if link.peer_kind is PeerKind.GPU else replace(link, peer_kind=None)
            for link in READING.nvlinks or ()
        ),
    )


def _as_of_old(gpu: Gpu) -> Gpu:
    """Return *gpu* without what the functions told that -DWITHOUT_NEWER leaves out."""
    assert gpu.mig is not None
    instances = tuple(replace(device, attributes=None) for device in gpu.mig.instances)
    return replace(
        gpu,
        module_id=None,
        numa_affinity=None,
        memory_numa_node=None,
        remapped_rows=None,
        is_over_sram_threshold=None,
        c2c=None,
        mig=replace(gpu.mig, instances=instances),
    )


@pytest.mark.usefixtures("nvml_fake")
def test_a_later_library_may_take_no_old_struct(
    nvml_supervise: Supervise,
    nvml_cache: Path,
) -> None:
    assert nvml_supervise(library(nvml_cache, only_fabric_v3=True)).scan() == READING


def test_a_board_without_a_multi_node_fabric_has_no_cluster(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.answer(ANSWERS.replace(CLUSTER, "00000000-0000-0000-0000-000000000000"))
    fabric = nvml_supervise().scan().gpus[0].fabric
    assert fabric is not None
    assert fabric.cluster_uuid is None


def test_the_architecture_outranks_what_a_link_says_of_its_generation(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    # H100 drivers were seen to report 5.0, whose links would be twice as fast.
    link = "nvmlDeviceGetNvLinkState {0} 0 = 0 0\nnvmlDeviceGetNvLinkVersion {0} 0 = 0 7\n"
    nvml_fake.answer(
        "nvmlDeviceGetCount_v2 = 0 2\nnvmlDeviceGetArchitecture 0 = 0 9\n"
        + link.format(0)
        + link.format(1),
    )
    assert [link.version for link in nvml_supervise().scan().nvlinks or ()] == [4, 5]


def test_text_that_is_not_unicode_is_unknown(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("garbage nvmlDeviceGetSerial")
    reading = nvml_supervise().scan()
    assert [gpu.serial for gpu in reading.gpus] == [None, None]
    assert reading.issues[0].subject == "GPU0 nvmlDeviceGetSerial"
    assert "utf-8" in reading.issues[0].reason


def test_a_gpu_on_no_baseboard_has_no_place_there(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.answer(
        ANSWERS.replace("nvmlDeviceGetModuleId 0 = 0 1", "nvmlDeviceGetModuleId 0 = 0 0"),
    )
    assert [gpu.module_id for gpu in nvml_supervise().scan().gpus] == [None, 2]


def test_who_may_not_see_gpu_instances_still_sees_mig_devices(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("code nvmlDeviceGetGpuInstanceById 4")
    reading = nvml_supervise().scan()
    mig = reading.gpus[0].mig
    assert mig is not None
    assert mig.instances == (
        replace(MIG_INSTANCES[0], profile_id=None, placement=None),
        MIG_INSTANCES[1],
    )
    assert reading.issues == (
        _issue("GPU0 nvmlDeviceGetGpuInstanceById", "Insufficient Permissions"),
    )


@pytest.mark.parametrize("refusal", ["= 3", "= 4", "= 25"])
def test_the_sram_threshold_is_unknown_where_the_driver_keeps_it_to_itself(
    refusal: str, nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    nvml_fake.answer(ANSWERS.replace("SramEccErrorStatus 1 = 0", f"SramEccErrorStatus 1 {refusal}"))
    reading = nvml_supervise().scan()
    assert [gpu.is_over_sram_threshold for gpu in reading.gpus] == [True, None]
    assert reading.issues == ()


def test_a_volta_retires_pages_and_does_not_report_on_its_sram(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    older = "nvmlDeviceGetCudaComputeCapability 0 = 0 7"
    nvml_fake.answer(ANSWERS.replace(f"{older.removesuffix('7')}8", older))
    old, new = nvml_supervise().scan().gpus
    assert (old.compute_capability, new.compute_capability) == ((7, 0), (8, 0))
    assert (old.retired_pages_pending, old.is_over_sram_threshold) == (True, None)
    assert (new.retired_pages_pending, new.is_over_sram_threshold) == (None, True)


def test_c2c_that_is_off_has_no_links(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    nvml_fake.answer(
        ANSWERS.replace("nvmlDeviceGetC2cModeInfoV 0 = 0 1", "nvmlDeviceGetC2cModeInfoV 0 = 0 0"),
    )
    assert nvml_supervise().scan().gpus[0].c2c == C2c(is_enabled=False)


def test_a_reading_counts_its_calls(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    nvml_fake.answer("nvmlDeviceGetCount_v2 = 0 0\n")
    # Init, the five of the system, count, shutdown.
    assert nvml_supervise().scan().calls == 7
