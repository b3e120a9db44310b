"""Why the agent says that it is not ready."""

from typing import Any

import pytest
from msgspec import structs

from nodetopo.components.gpus.readiness import PATIENCE
from nodetopo.components.gpus.readiness import not_ready as reasons_of
from nodetopo.kernel.component import joined
from nodetopo.machines.bundled import machine
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.model.presence import UnlistedGpu
from nodetopo.model.snapshot import Snapshot

GPUS = machine("l40s-pcie-4")
ONLY_ON_PCI = structs.replace(GPUS, gpus=(), pci_gpus=tuple(g.pci for g in GPUS.gpus if g.pci))
NO_GPUS = Snapshot(pci_gpus=())
ANSWERS = NvmlStatus()
HAD = {"nvidia.com/gpu": True}
LACKS = {"nvidia.com/gpu": False}


def not_ready(**facts: Any) -> str | None:
    return joined(reasons_of(**facts))


def reasons(
    snapshot: Snapshot | None = GPUS,
    nvml: NvmlStatus = ANSWERS,
    is_registered: dict[str, bool] = HAD,
    conflicts: dict[str, str] | None = None,
) -> list[str]:
    said = not_ready(
        snapshot=snapshot, nvml=nvml, is_registered=is_registered, conflicts=conflicts or {}
    )
    return [] if said is None else [line.partition(":")[0] for line in said.split("\n")]


def trouble(what: NvmlTrouble, failures: int = PATIENCE, code: int | None = None) -> NvmlStatus:
    return NvmlStatus(trouble=what, code=code, failures=failures, cause="no answer in 10 s")


def test_an_agent_whose_gpus_the_kubelet_has_is_ready() -> None:
    assert reasons() == []


def test_an_agent_that_has_not_read_the_node_is_not_ready() -> None:
    assert reasons(None, is_registered={}) == ["NotScanned"]


@pytest.mark.parametrize("snapshot", [GPUS, None])
def test_an_agent_that_has_closed_nvml_on_request_is_not_ready(snapshot: Snapshot | None) -> None:
    said = not_ready(
        snapshot=snapshot, nvml=ANSWERS, is_registered=HAD, conflicts={}, pause="a=b asks for it"
    )
    assert said == "DriverPaused: a=b asks for it"


def test_a_node_without_gpus_is_ready() -> None:
    without_driver = trouble(NvmlTrouble.NO_LIBRARY)
    assert reasons(NO_GPUS, without_driver, {}) == []


def test_gpus_without_a_driver_are_not_ready() -> None:
    assert reasons(ONLY_ON_PCI, trouble(NvmlTrouble.NO_LIBRARY, 1), {}) == ["NvmlLibraryGone"]


@pytest.mark.parametrize(("driver", "expected"), [("nvidia", ["GpusMissing"]), ("vfio-pci", [])])
def test_a_driver_that_lists_none_of_its_gpus_is_not_ready(
    driver: str, expected: list[str]
) -> None:
    unlisted = tuple(UnlistedGpu(pci=it, driver=driver) for it in ONLY_ON_PCI.pci_gpus or ())
    node = structs.replace(ONLY_ON_PCI, unlisted_gpus=unlisted)
    assert reasons(node, is_registered={}) == expected
    some = structs.replace(GPUS, gpus=GPUS.gpus[1:], unlisted_gpus=unlisted[:1])
    assert reasons(some) == []


def test_gpus_that_are_deliberately_not_offered_are_ready() -> None:
    assert reasons(is_registered={}) == []


def test_a_resource_that_the_kubelet_lacks_is_named() -> None:
    assert not_ready(snapshot=GPUS, nvml=ANSWERS, is_registered=LACKS, conflicts={}) == (
        "NotRegistered: the kubelet does not have nvidia.com/gpu"
    )


def test_a_conflict_is_one_line_with_the_competing_plugin() -> None:
    said = not_ready(
        snapshot=GPUS,
        nvml=ANSWERS,
        is_registered=LACKS,
        conflicts={"nvidia.com/gpu": "nvidia-gpu.sock serves nvidia.com/gpu"},
    )
    assert said == "ResourceConflict: nvidia-gpu.sock serves nvidia.com/gpu"


@pytest.mark.parametrize(
    ("what", "code", "reason"),
    [
        (NvmlTrouble.NO_ANSWER, None, "NvmlUnresponsive"),
        (NvmlTrouble.DIED, None, "NvmlDied"),
        (NvmlTrouble.REFUSED, 18, "NvmlVersionMismatch"),
        (NvmlTrouble.REFUSED, 999, "NvmlRefuses"),
        (NvmlTrouble.NO_LIBRARY, None, "NvmlLibraryGone"),
    ],
)
def test_nvml_that_stays_silent_is_a_reason(
    what: NvmlTrouble, code: int | None, reason: str
) -> None:
    assert reasons(nvml=trouble(what, code=code)) == [reason]


def test_one_missed_reading_is_none() -> None:
    assert reasons(nvml=trouble(NvmlTrouble.NO_ANSWER, PATIENCE - 1)) == []


def test_the_cause_is_passed_on() -> None:
    said = not_ready(
        snapshot=GPUS, nvml=trouble(NvmlTrouble.NO_ANSWER), is_registered=HAD, conflicts={}
    )
    assert said == "NvmlUnresponsive: no answer in 10 s"


def test_every_reason_has_a_line() -> None:
    status = trouble(NvmlTrouble.NO_ANSWER)
    resources = {"nvidia.com/gpu": False, "nvidia.com/mig-1g.10gb": False}
    found = reasons(GPUS, status, resources, {"nvidia.com/gpu": "another plugin"})
    assert found == ["ResourceConflict", "NotRegistered", "NvmlUnresponsive"]


def test_gpus_that_no_container_could_use_are_not_ready() -> None:
    problem = "no libcuda.so.580.95.05 was found — set driver-root"
    said = not_ready(
        snapshot=GPUS, nvml=ANSWERS, is_registered=HAD, conflicts={}, cdi_problem=problem
    )
    assert said == f"CdiNotWritten: {problem}"
