"""Each health rule: what passes, what breaks it, what leaves it unknown."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Finding, Verdict
from nodetopo.components.audit.catalogue import HEALTH
from nodetopo.model.gpu import Gpu, RemappedRows
from nodetopo.model.hca import Hca
from nodetopo.model.pci import PcieLink
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result, with_gpu

FAILED_REMAP = RemappedRows(correctable=0, uncorrectable=1, is_pending=False, has_failed=True)
OF_HCAS_ALONE = ("NUM-002", "RDM-001", "RDM-003", "RDM-004")
NARROW = PcieLink(generation=5, width=8, max_generation=5, max_width=16)


def changed_hcas(snapshot: Snapshot, change: Callable[[Hca], Hca]) -> Snapshot:
    return replace(snapshot, hcas=tuple(map(change, snapshot.hcas or ())))


def port_state(name: str, state: str | None) -> Callable[[Hca], Hca]:
    def change(hca: Hca) -> Hca:
        ports = tuple(replace(port, state=state, physical_state=None) for port in hca.ports)
        return replace(hca, ports=ports) if hca.name == name else hca

    return change


def without_node_of(name: str) -> Callable[[Hca], Hca]:
    return lambda hca: replace(hca, numa_node=None) if hca.name == name else hca


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "l40s-pcie-4"])
def test_every_health_rule_passes_on_a_sound_machine(name: str) -> None:
    report = evaluate(healthy(name), HEALTH)
    assert [(it.rule.code, it.verdict) for it in report.results] == [
        (rule.code, Verdict.PASS) for rule in HEALTH
    ]


@pytest.mark.parametrize(
    ("code", "change", "finding"),
    [
        (
            "GPU-001",
            lambda gpu: replace(gpu, recovery_action=2),
            Finding(subject="GPU0 0000:1b:00.0", observed="node reboot", expected="none"),
        ),
        (
            "GPU-001",
            lambda gpu: replace(gpu, recovery_action=9),
            Finding(subject="GPU0 0000:1b:00.0", observed="action 9", expected="none"),
        ),
        (
            "GPU-002",
            lambda gpu: replace(gpu, remapped_rows=FAILED_REMAP),
            Finding(
                subject="GPU0 0000:1b:00.0",
                observed="a row remap failed",
                expected="no failed row remap",
            ),
        ),
        (
            "PCI-001",
            lambda gpu: replace(gpu, pcie=NARROW),
            Finding(subject="GPU0 0000:1b:00.0", observed="x8", expected="x16"),
        ),
        (
            "PCI-002",
            lambda gpu: replace(gpu, is_lost=True),
            Finding(subject="GPU0 0000:1b:00.0", observed="lost", expected="answers the driver"),
        ),
        (
            "NUM-001",
            lambda gpu: replace(gpu, numa_node=None, pci=None),
            Finding(subject="GPU0", observed="no node", expected="a node number"),
        ),
    ],
)
def test_a_broken_gpu_is_the_only_finding(
    code: str,
    change: Callable[[Gpu], Gpu],
    finding: Finding,
) -> None:
    assert result(code, with_gpu(healthy(), 0, change)).findings == (finding,)


@pytest.mark.parametrize(
    ("code", "change", "missing"),
    [
        ("GPU-001", lambda gpu: replace(gpu, recovery_action=None), "recovery action of GPU3"),
        ("GPU-001", lambda gpu: replace(gpu, is_lost=True), "recovery action of GPU3"),
        ("GPU-002", lambda gpu: replace(gpu, remapped_rows=None), "remapped rows of GPU3"),
        ("PCI-001", lambda gpu: replace(gpu, pcie=None), "PCIe link width of GPU3"),
        ("PCI-001", lambda gpu: replace(gpu, pcie=PcieLink(width=16)), "PCIe link width of GPU3"),
        ("NVL-001", lambda gpu: replace(gpu, is_lost=True), "NVLinks of GPU3"),
        ("RDM-002", lambda gpu: replace(gpu, numa_node=None), "NUMA node of GPU3"),
    ],
)
def test_what_one_gpu_does_not_tell_leaves_the_rule_unknown(
    code: str,
    change: Callable[[Gpu], Gpu],
    missing: str,
) -> None:
    found = result(code, with_gpu(healthy(), 3, change))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, (missing,))


@pytest.mark.parametrize("code", [it.code for it in HEALTH if it.code not in OF_HCAS_ALONE])
def test_nothing_about_gpus_passes_while_nvml_is_unavailable(code: str) -> None:
    issue = ProbeIssue(probe="nvml", subject="libnvidia-ml.so.1", reason="not found")
    blind = replace(healthy(), gpus=(), nvlinks=None, issues=(issue,))
    found = result(code, blind)
    assert (found.verdict, found.missing[0]) == (
        Verdict.UNKNOWN,
        "GPUs (libnvidia-ml.so.1: not found)",
    )


@pytest.mark.parametrize("code", [rule.code for rule in HEALTH])
def test_a_node_without_gpus_and_hcas_passes_when_that_is_known(code: str) -> None:
    empty = replace(healthy(), gpus=(), nvlinks=(), nvswitches=(), hcas=())
    assert result(code, empty).verdict is Verdict.PASS


@pytest.mark.parametrize("code", ["GPU-001", "GPU-002", "NVL-001", "NVL-002", "PCI-001", "PCI-002"])
def test_what_was_last_known_does_not_pass_while_nvml_hangs(code: str) -> None:
    issue = ProbeIssue(probe="nvml", subject="", reason="no answer in 20 s")
    found = result(code, replace(healthy(), issues=(issue,)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("present state of the GPUs (no answer in 20 s)",),
    )


def test_a_gpu_on_pci_that_nvml_does_not_list_leaves_the_bus_unknown() -> None:
    issue = ProbeIssue(probe="pcie", subject="0000:99:00.0", reason="NVML does not list it")
    found = result("PCI-002", replace(healthy(), issues=(issue,)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("0000:99:00.0, NVML does not list it",),
    )


def test_a_gpu_without_an_identity_has_not_answered() -> None:
    bare = with_gpu(healthy(), 3, lambda gpu: Gpu(index=gpu.index))
    assert result("PCI-002", bare).missing == ("answer of GPU3",)


def test_gpus_on_pci_that_nvml_was_not_asked_about_are_unknown() -> None:
    issue = ProbeIssue(probe="pcie", subject="8 NVIDIA GPUs on PCI", reason="not asked")
    blind = replace(healthy(), gpus=(), nvlinks=None, issues=(issue,))
    assert result("PCI-002", blind).missing == ("GPUs (8 NVIDIA GPUs on PCI: not asked)",)


def test_a_gpu_older_than_row_remapping_needs_no_remap_counters() -> None:
    v100 = with_gpu(healthy("dgx-1v"), 0, lambda gpu: replace(gpu, remapped_rows=None))
    assert result("GPU-002", v100).verdict is Verdict.PASS


def test_gpus_without_a_numa_node_are_no_fault_where_there_is_one_node() -> None:
    whole = healthy()
    single = replace(whole, numa_nodes=(whole.numa_nodes or ())[:1])
    bare = with_gpu(single, 0, lambda gpu: replace(gpu, numa_node=None))
    assert result("NUM-001", bare).verdict is Verdict.PASS


def test_unread_numa_nodes_leave_the_rule_unknown() -> None:
    found = result("NUM-001", replace(healthy(), numa_nodes=None))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("NUMA nodes",))


def test_a_port_that_is_down_is_named_with_what_the_kernel_says() -> None:
    found = result("RDM-001", changed_hcas(healthy(), port_state("mlx5_2", "DOWN")))
    assert (found.verdict, found.findings) == (
        Verdict.FAIL,
        (Finding(subject="mlx5_2 port 1", observed="DOWN", expected="ACTIVE"),),
    )


def test_a_port_of_unknown_state_leaves_the_rule_unknown() -> None:
    found = result("RDM-001", changed_hcas(healthy(), port_state("mlx5_2", None)))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("port states of mlx5_2",))


@pytest.mark.parametrize("code", ["RDM-001", "RDM-002"])
def test_unread_hcas_leave_the_rdma_rules_unknown(code: str) -> None:
    assert result(code, replace(healthy(), hcas=None)).verdict is Verdict.UNKNOWN


def test_gpus_without_an_hca_on_their_node_are_warned_of() -> None:
    whole = healthy()
    near = tuple(hca for hca in whole.hcas or () if hca.numa_node == 0)
    found = result("RDM-002", replace(whole, hcas=near))
    assert (found.verdict, [finding.subject.split()[0] for finding in found.findings]) == (
        Verdict.WARN,
        ["GPU4", "GPU5", "GPU6", "GPU7"],
    )


def test_an_hca_of_unknown_node_matters_only_where_it_could_change_the_answer() -> None:
    whole = changed_hcas(healthy(), without_node_of("mlx5_7"))
    far = tuple(hca for hca in whole.hcas or () if hca.numa_node != 1)
    found = result("RDM-002", replace(whole, hcas=far))
    assert (result("RDM-002", whole).verdict, found.missing, found.findings) == (
        Verdict.PASS,
        ("NUMA node of mlx5_7",),
        (),
    )
