"""The second depth of a reading: it costs less, and says the same as a whole one.

In this process, so that many readings are cheap: the fake library neither hangs nor crashes here.
"""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.errors import NvmlUnavailable
from nodetopo.probes.nvml.reading import read_nvml, refresh_nvml
from nodetopo.probes.nvml.record import NvmlReading, with_last_known
from tests.conftest import NODES
from tests.fake_nvml.build import NAME
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import SHAPES
from tests.probes.nvml.nvml_pair import ANSWERS

CALLS = sorted(
    {line.split(" ", 1)[0] for line in ANSWERS.splitlines() if line.startswith("nvml")}
    | {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetFieldValues"}
)

FAULTS = (
    "lost 0",
    "gone 0",
    "lost 1",
    "code nvmlDeviceGetUUID 999",
    "code nvmlDeviceGetMigMode 4",
    "code nvmlDeviceGetMaxMigDeviceCount 999",
    "code nvmlDeviceGetMigDeviceHandleByIndex 999",
    "code nvmlDeviceGetGpuInstanceById 4",
    "code nvmlDeviceGetNvLinkState 999",
    "code nvmlDeviceGetNvLinkState 3",
    "code nvmlDeviceGetNvLinkRemotePciInfo_v2 999",
    "code nvmlDeviceGetFieldValue 999",
    "code nvmlDeviceGetFieldValue 15",
    "code nvmlDeviceGetFieldValues 999",
    "code nvmlDeviceGetGpuFabricInfoV 999",
    "code nvmlDeviceGetTotalEccErrors 15",
    "code nvmlDeviceGetP2PStatus 999",
    "garbage nvmlDeviceGetFieldValue",
    "garbage nvmlDeviceGetRemappedRows",
    "garbage nvmlDeviceGetUUID",
    "garbage nvmlDeviceGetNvLinkState",
)


@pytest.fixture(autouse=True, scope="module")
def _loaded(nvml_library: Path) -> None:
    """Load the fake library, which the loader then finds by its SONAME."""
    ctypes.CDLL(str(nvml_library / NAME))


def _both() -> tuple[NvmlReading | str, NvmlReading | str]:
    """Return a whole reading, and one refreshed from it, of the machine as it is."""
    try:
        whole = read_nvml()
    except NvmlUnavailable as error:
        return str(error), str(error)
    return whole, refresh_nvml(whole)


@pytest.fixture(params=SHAPES, ids=lambda path: path.name)
def node(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> FakeNvml:
    """Return each composed machine in turn."""
    fake = FakeNvml(tmp_path / "nvml", (request.param / "nvml.txt").read_text("utf-8"))
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(fake.directory))
    return fake


def test_refreshed_and_whole_readings_of_an_unchanged_node_are_equal(node: FakeNvml) -> None:
    whole, refreshed = _both()
    assert refreshed == whole
    assert isinstance(whole, NvmlReading)
    assert isinstance(refreshed, NvmlReading)
    assert refreshed.calls < whole.calls / 2
    for fault in FAULTS:
        node.fail(fault)
        whole, refreshed = _both()
        assert refreshed == whole, fault


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    faults=st.lists(
        st.one_of(
            st.builds("code {} {}".format, st.sampled_from(CALLS), st.sampled_from((2, 3, 4, 999))),
            st.builds("garbage {}".format, st.sampled_from(CALLS)),
            st.sampled_from(("lost 0", "gone 1")),
        ),
        max_size=6,
    ),
)
def test_refreshed_and_whole_readings_are_equal_under_any_faults(
    nvml_fake: FakeNvml, faults: list[str]
) -> None:
    nvml_fake.fail(*faults)
    whole, refreshed = _both()
    assert refreshed == whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CurrPcieLinkGeneration 1 = 0 1", "CurrPcieLinkGeneration 1 = 0 4"),
        ("CurrPcieLinkWidth 1 = 0 16", "CurrPcieLinkWidth 1 = 0 8"),
        ("PersistenceMode 1 = 0 1", "PersistenceMode 1 = 0 0"),
        ("TotalEccErrors 1 1 0 = 0 3", "TotalEccErrors 1 1 0 = 0 4"),
        ("RemappedRows 1 = 0 1 | 2 | 1 | 0", "RemappedRows 1 = 0 1 | 2 | 1 | 1"),
        ("RemappedRows 1 = 0 1 | 2 | 1 | 0", "RemappedRows 1 = 999"),
        ("| 1 | 0 | 1\nnvmlDeviceGetC2cModeInfoV 1", "| 1 | 0 | 0\nnvmlDeviceGetC2cModeInfoV 1"),
        ("FieldValue 1 230 = 0 4", "FieldValue 1 230 = 0 0"),
        ("MigMode 1 = 0 0 | 1", "MigMode 1 = 0 0 | 0"),
        ("| 7 | 5\nnvmlDeviceGetNvLinkState 1", "| 7 | 6\nnvmlDeviceGetNvLinkState 1"),
    ],
)
def test_what_can_change_is_read_anew_and_nothing_else(
    nvml_fake: FakeNvml, old: str, new: str
) -> None:
    before = read_nvml()
    nvml_fake.answer(_replaced(ANSWERS, old, new))
    whole = read_nvml()
    assert whole != before
    assert refresh_nvml(before) == whole
    nvml_fake.answer(_replaced(ANSWERS.replace("SXM4-40GB\n", "SXM4-80GB\n"), old, new))
    assert refresh_nvml(before) == whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nvmlSystemGetDriverVersion = 0 580.95.05", "nvmlSystemGetDriverVersion = 0 590.1"),
        ("nvmlDeviceGetCount_v2 = 0 2", "nvmlDeviceGetCount_v2 = 0 1"),
        ("nvmlDeviceGetUUID 1 = 0 GPU-00000001", "nvmlDeviceGetUUID 1 = 0 GPU-other"),
        ("nvmlDeviceGetMigMode 0 = 0 1 | 1", "nvmlDeviceGetMigMode 0 = 0 0 | 0"),
        ("nvmlDeviceGetMigMode 0 = 0 1 | 1", "nvmlDeviceGetMigMode 0 = 3"),
        ("nvmlDeviceGetUUID 0:2 = 0 MIG-bbbb", "nvmlDeviceGetUUID 0:2 = 0 MIG-cccc"),
        ("HandleByIndex 0 2 = 0", "HandleByIndex 0 2 = 6"),
        ("nvmlDeviceGetNvLinkState 1 3 = 0 1", "nvmlDeviceGetNvLinkState 1 3 = 0 0"),
        ("nvmlDeviceGetNvLinkState 0 1 = 0 0", "nvmlDeviceGetNvLinkState 0 1 = 0 1"),
        ("GpuFabricInfoV 1 = 0 3", "GpuFabricInfoV 1 = 0 2"),
        ("FieldValue 1 91 = 0 3", "FieldValue 1 91 = 0 2"),
        ("FieldValue 1 91 = 0 3", "FieldValue 1 91 = 2"),
    ],
)
def test_a_change_of_what_a_refresh_takes_over_has_everything_read(
    nvml_fake: FakeNvml, old: str, new: str
) -> None:
    before = read_nvml()
    # Not even a GPU's name is kept then.
    nvml_fake.answer(_replaced(ANSWERS.replace("SXM4-40GB\n", "SXM4-80GB\n"), old, new))
    refreshed = refresh_nvml(before)
    assert refreshed == read_nvml()
    assert refreshed.gpus[0].product == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize("faults", [("lost 1", ""), ("", "lost 1"), ("gone 1", ""), ("", "gone 1")])
def test_a_gpu_that_is_or_was_lost_has_everything_read(
    nvml_fake: FakeNvml, faults: tuple[str, str]
) -> None:
    nvml_fake.fail(faults[0])
    before = read_nvml()
    nvml_fake.fail(faults[1])
    assert refresh_nvml(before) == read_nvml()


def test_a_gpu_found_again_is_read_anew_where_its_last_known_state_was_kept(
    nvml_fake: FakeNvml,
) -> None:
    good = read_nvml()
    nvml_fake.fail("lost 1")
    lost = with_last_known(read_nvml(), good)
    nvml_fake.fail()
    assert refresh_nvml(lost) == good


def test_a_gpu_lost_between_two_calls_is_lost_though_nothing_else_changed(
    nvml_fake: FakeNvml,
) -> None:
    # Without MIG, a fabric and links, whose answers would be missed as well.
    plain = [line for line in ANSWERS.splitlines() if not re.search("Mig|Fabric|NvLink", line)]
    nvml_fake.answer("\n".join(plain))
    before = read_nvml()
    nvml_fake.fail("code nvmlDeviceGetTotalEccErrors 15")
    refreshed = refresh_nvml(before)
    assert refreshed == read_nvml()
    assert all(gpu.is_lost for gpu in refreshed.gpus)


def test_a_refusal_that_ended_is_no_issue_any_more(nvml_fake: FakeNvml) -> None:
    nvml_fake.fail("code nvmlDeviceGetRemappedRows 999", "code nvmlDeviceGetSerial 999")
    before = read_nvml()
    nvml_fake.fail()
    refreshed = refresh_nvml(before)
    assert [issue.subject for issue in refreshed.issues] == [
        "GPU0 nvmlDeviceGetSerial",  # not read again: its cause may be gone, its value is missing
        "GPU1 nvmlDeviceGetSerial",
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("FieldValue 0 165 0 = 0 1", "FieldValue 0 165 0 = 0 2"),
        lambda text: text.replace("FieldValue 0 165 0 = 0 1", "FieldValue 0 165 0 = 999"),
        lambda text: text.replace("FieldValue 0 165 0 = 0 1", ""),
    ],
    ids=["asleep", "refused", "unknown"],
)
def test_only_the_call_that_read_a_links_state_can_change_it(
    nvml_fake: FakeNvml, change: Callable[[str], str]
) -> None:
    before = read_nvml()
    nvml_fake.answer(change(ANSWERS).replace("SXM4-40GB\n", "SXM4-80GB\n"))
    assert refresh_nvml(before) == before  # the name shows that not all was read


def test_whole_and_refreshed_readings_count_their_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(NODES / "h100x8-nvswitch-2numa-8cx7"))
    whole = read_nvml()
    # Init, driver, count and shutdown; of each GPU its handle, UUID, PCIe generation and width,
    # persistence, two ECC counters, remapped rows, SRAM threshold, MIG mode, fabric, recovery
    # action with the number of links, and its 18 links at once.
    assert refresh_nvml(whole).calls == 4 + 8 * 13
    # The system's 4, init, count and shutdown; of each GPU 31 facts, 18 links, address and kind of
    # their far ends and their fields at once; of each pair closeness and 2 times 3 accesses.
    assert whole.calls == 7 + 8 * (31 + 18 + 2 * 18 + 1) + 28 * (1 + 2 * 3)


@pytest.mark.parametrize("answer", ["", "nvmlDeviceGetFieldValue {} 91 = 0 0\n"])
def test_a_card_of_an_architecture_without_nvlinks_is_asked_about_none(
    answer: str, nvml_fake: FakeNvml
) -> None:
    text = (NODES / "l40sx4-pcie-2numa" / "nvml.txt").read_text("utf-8")
    nvml_fake.answer(text + "".join(map(answer.format, range(4))))
    whole = read_nvml()
    # The system's 4, init, count and shutdown; of each GPU 31 facts; of each pair 7. A count of 0
    # is checked by nothing more: Ada Lovelace has no NVLink.
    assert (whole.nvlinks, whole.calls) == ((), 7 + 4 * 31 + 6 * 7)


def test_a_refresh_that_finds_a_change_counts_both(nvml_fake: FakeNvml) -> None:
    before = read_nvml()
    nvml_fake.answer(_replaced(ANSWERS, "GetDriverVersion = 0 580", "GetDriverVersion = 0 590"))
    assert refresh_nvml(before).calls == before.calls + 1


def test_readings_are_equal_whatever_they_cost() -> None:
    assert replace(NvmlReading(), calls=7) == NvmlReading()


def _replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)
