"""The rules on GPUs beside recovery actions: memory, clocks, settings."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.gpu import EccErrors, Gpu, Mig, RemappedRows, Virtualization
from nodetopo.model.probe_issue import ProbeIssue
from tests.components.audit.judge import healthy, result, with_gpu

PENDING = RemappedRows(correctable=1, uncorrectable=0, is_pending=True, has_failed=False)
NAME = "GPU0 0000:1b:00.0"
Change = Callable[[Gpu], Gpu]


def change(**facts: object) -> Change:
    return lambda gpu: replace(gpu, **facts)  # by name


@pytest.mark.parametrize(
    ("code", "worse", "observed"),
    [
        ("GPU-003", change(remapped_rows=PENDING), "a row remap waits for a reset"),
        (
            "GPU-003",
            change(compute_capability=(7, 0), retired_pages_pending=True, remapped_rows=None),
            "the retirement of a page waits for a reset",
        ),
        (
            "GPU-004",
            change(ecc_errors=EccErrors(volatile=2, aggregate=9)),
            "2 uncorrectable since the driver was loaded",
        ),
        ("GPU-005", change(throttle_reasons=0x44), "hardware thermal slowdown"),
        (
            "GPU-005",
            change(throttle_reasons=0xA0),
            "software thermal slowdown, power brake from the power supply",
        ),
        ("GPU-006", change(persistence=False), "persistence mode off"),
        ("GPU-007", change(ecc=False, ecc_pending=False), "ECC off"),
        ("GPU-007", change(ecc=False, ecc_pending=True), "ECC off, on after the next reset"),
        ("GPU-007", change(ecc_pending=False), "ECC on, off after the next reset"),
    ],
)
def test_trouble_is_a_warning_with_its_words(code: str, worse: Change, observed: str) -> None:
    found = result(code, with_gpu(healthy(), 0, worse))
    assert found.verdict is Verdict.WARN
    assert [(it.subject, it.observed) for it in found.findings] == [(NAME, observed)]


@pytest.mark.parametrize(
    ("code", "same"),
    [
        ("GPU-004", change(ecc_errors=EccErrors(volatile=0, aggregate=70))),  # in its life
        ("GPU-004", change(ecc=False, ecc_errors=None)),
        ("GPU-005", change(throttle_reasons=0x4)),  # a power cap
        ("GPU-005", change(throttle_reasons=0x8)),  # also while clocks change
        ("GPU-005", change(throttle_reasons=0x112)),  # set by hand, sync boost, display
        ("GPU-005", change(throttle_reasons=None, virtualization=Virtualization.VGPU)),
    ],
)
def test_what_is_no_fault_passes(code: str, same: Change) -> None:
    assert result(code, with_gpu(healthy(), 0, same)).verdict is Verdict.PASS


def test_a_gpu_over_the_sram_threshold_is_found() -> None:
    worn = with_gpu(healthy(), 3, change(is_over_sram_threshold=True))
    found = result("GPU-004", worn)
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject="GPU3 0000:61:00.0",
                observed="SRAM error threshold exceeded",
                expected="not exceeded",
            ),
        ),
    )


@pytest.mark.parametrize("known", [False, None])
def test_a_gpu_that_has_no_sram_threshold_is_not_over_it(*, known: bool | None) -> None:
    found = result("GPU-004", with_gpu(healthy(), 0, change(is_over_sram_threshold=known)))
    assert (found.verdict, found.missing) == (Verdict.PASS, ())


def test_an_sram_threshold_that_nvml_failed_to_report_is_unknown() -> None:
    issue = ProbeIssue.of_call("GPU2", "nvmlDeviceGetSramEccErrorStatus", "Unknown Error")
    found = result("GPU-004", replace(healthy(), issues=(issue,)))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("SRAM error threshold of GPU2",))


@pytest.mark.parametrize("code", ["GPU-002", "GPU-003", "GPU-004", "GPU-007"])
def test_a_card_without_ecc_needs_no_answers_about_it(code: str) -> None:
    card = change(ecc=None, ecc_pending=None, ecc_errors=None, remapped_rows=None)
    assert result(code, with_gpu(healthy("l40s-pcie-4"), 0, card)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("code", "silent", "missing"),
    [
        ("GPU-003", change(remapped_rows=None), "pending row remaps of GPU0"),
        (
            "GPU-003",
            change(remapped_rows=None, mig=Mig(is_enabled=True)),  # NVML tells none then
            "pending row remaps of GPU0",
        ),
        ("GPU-004", change(ecc_errors=None), "memory errors of GPU0"),
        ("GPU-004", change(ecc_errors=EccErrors(aggregate=1)), "memory errors of GPU0"),
        ("GPU-005", change(throttle_reasons=None), "reasons of low clocks of GPU0"),
        ("GPU-006", change(persistence=None), "persistence mode of GPU0"),
        ("GPU-006", change(is_lost=True), "persistence mode of GPU0"),
        ("GPU-007", change(ecc=None, ecc_pending=None), "ECC mode of GPU0"),
    ],
)
def test_a_missing_answer_leaves_the_rule_unknown(code: str, silent: Change, missing: str) -> None:
    found = result(code, with_gpu(healthy(), 0, silent))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, (missing,))


def test_a_gpu_without_an_address_is_named_by_its_index() -> None:
    bare = with_gpu(healthy(), 0, change(persistence=False, pci=None))
    assert result("GPU-006", bare).findings == (
        Finding(subject="GPU0", observed="persistence mode off", expected="on"),
    )


@pytest.mark.parametrize("code", [f"GPU-00{number}" for number in range(1, 8)])
def test_a_node_without_gpus_is_passed_over(code: str) -> None:
    assert result(code, replace(healthy(), gpus=())).skipped == "no GPU"
