"""PCI-002 and PCI-010: GPUs that NVML does not list, and GPUs that are not on PCI."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.presence import ExpectedGpus, UnlistedGpu
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result


def unlisted(count: int, driver: str | None) -> Snapshot:
    """Return a DGX that NVML lists without its last *count* GPUs, which *driver* has."""
    whole = healthy()
    gone = tuple(UnlistedGpu(pci=gpu.pci, driver=driver) for gpu in whole.gpus[-count:] if gpu.pci)
    reason = "an NVIDIA GPU on PCI that NVML does not list"
    issues = tuple(ProbeIssue(probe="pcie", subject=str(it.pci), reason=reason) for it in gone)
    if count == len(whole.gpus):
        subject = f"{count} NVIDIA GPUs on PCI"
        issues = (ProbeIssue(probe="pcie", subject=subject, reason="NVML lists none of them"),)
    return replace(whole, gpus=whole.gpus[:-count], unlisted_gpus=gone, issues=issues)


@pytest.mark.parametrize("count", [1, 8])
def test_gpus_of_the_driver_that_nvml_does_not_list_fail(count: int) -> None:
    found = result("PCI-002", unlisted(count, "nvidia"))
    assert (found.verdict, found.missing) == (Verdict.FAIL, ())
    assert [it.observed for it in found.findings] == [
        "not listed by NVML, bound to nvidia",
    ] * count


def test_a_gpu_without_a_driver_fails_beside_others_that_have_one() -> None:
    found = result("PCI-002", unlisted(1, None))
    assert [it.observed for it in found.findings] == ["not listed by NVML, bound to no driver"]


def test_a_gpu_that_is_passed_through_passes() -> None:
    found = result("PCI-002", unlisted(1, "vfio-pci"))
    assert (found.verdict, found.missing) == (Verdict.PASS, ())


def test_a_node_whose_gpus_are_all_passed_through_has_none_to_judge() -> None:
    found = result("PCI-002", unlisted(8, "vfio-pci"))
    assert found.skipped == "all GPUs are bound to vfio-pci"


def test_a_gpu_of_which_the_driver_is_not_known_stays_unknown() -> None:
    found = result("PCI-002", replace(unlisted(1, None), unlisted_gpus=()))
    assert found.verdict is Verdict.UNKNOWN


def test_fewer_gpus_on_pci_than_the_machine_has_had_fail() -> None:
    expected = ExpectedGpus(count=9, source="the machine has had")
    found = result("PCI-010", replace(healthy(), expected_gpus=expected))
    (finding,) = found.findings
    assert (found.verdict, finding.observed) == (Verdict.FAIL, "8")
    assert finding.expected == "9, as the machine has had"


def test_without_an_expectation_the_number_of_gpus_says_nothing() -> None:
    found = result("PCI-010", healthy())
    assert found.skipped is not None
