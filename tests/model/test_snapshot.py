import pytest

from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue


def _nvml(subject: str) -> ProbeIssue:
    return ProbeIssue(probe="nvml", subject=subject, reason="r")


@pytest.mark.parametrize(
    ("device", "call", "links", "subject"),
    [
        ("GPU3", "nvmlDeviceGetUUID", (), "GPU3 nvmlDeviceGetUUID"),
        ("GPU3", "nvmlDeviceGetNvLinkState", (4,), "GPU3 nvmlDeviceGetNvLinkState link 4"),
        ("GPU3", "field 94", (0, 1, 2, 7), "GPU3 field 94 links 0-2,7"),
        ("GPU10 GPU11", "NVLink", (), "GPU10 GPU11 NVLink"),
        ("system", "nvmlSystemGetDriverVersion", (), "system nvmlSystemGetDriverVersion"),
    ],
)
def test_device_and_call_of_an_issue_round_trip(
    device: str, call: str, links: tuple[int, ...], subject: str
) -> None:
    issue = ProbeIssue.of_call(device, call, "r", links=links)
    assert issue == _nvml(subject)
    assert (issue.device, issue.call, issue.is_whole) == (device, call, False)


@pytest.mark.parametrize(
    ("subject", "gpus"),
    [("GPU3 x", (3,)), ("GPU3", (3,)), ("GPU3 GPU4 x", (3, 4)), ("system x", ()), ("", ())],
)
def test_an_issue_names_its_gpus(subject: str, gpus: tuple[int, ...]) -> None:
    assert _nvml(subject).gpus == gpus


@pytest.mark.parametrize("subject", ["", "library", "scan", "GPUs", "8 NVIDIA GPUs on PCI"])
def test_an_issue_of_nvml_without_a_device_is_of_nvml_as_a_whole(subject: str) -> None:
    issue = _nvml(subject)
    assert (issue.device, issue.call, issue.is_whole) == (None, "", True)
    assert not ProbeIssue(probe="pcie", subject=subject, reason="r").is_whole


def test_an_issue_about_a_pci_function_has_its_address() -> None:
    issue = ProbeIssue(probe="pcie", subject="0000:99:00.0", reason="r")
    assert (issue.pci, _nvml("GPU3 x").pci) == (PciAddress(0, 0x99, 0, 0), None)
