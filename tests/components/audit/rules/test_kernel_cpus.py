"""Frequency, idle states, isolated CPUs and interrupts."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.host import IdleState, Interrupts
from nodetopo.model.kubelet_state import CpuState
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, SETTINGS, STATE, healthy, result


def _scaling(governors: tuple[str, ...], drivers: object, preferences: object) -> Snapshot:
    whole = healthy()
    assert whole.cpu is not None
    host = replace(HOST, frequency_drivers=drivers, energy_preferences=preferences)  # any part
    return replace(whole, cpu=replace(whole.cpu, governors=governors), host=host)


@pytest.mark.parametrize("driver", ["intel_pstate", "amd-pstate-epp"])
def test_a_cpu_that_chooses_for_itself_may_prefer_performance(driver: str) -> None:
    snapshot = _scaling(("powersave",), (driver,), ("performance",))
    assert result("KRN-007", snapshot).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("governors", "driver", "preferences", "observed"),
    [
        (("powersave",), "acpi-cpufreq", (), "powersave"),
        (("powersave",), "acpi-cpufreq", ("performance",), None),
        (("performance", "schedutil"), "cppc_cpufreq", (), "schedutil"),
        (
            ("powersave",),
            "intel_pstate",
            ("balance_performance",),
            "powersave with energy preference balance_performance",
        ),
    ],
)
def test_a_cpu_that_saves_power_is_found(
    governors: tuple[str, ...], driver: str, preferences: tuple[str, ...], observed: str | None
) -> None:
    found = result("KRN-007", _scaling(governors, (driver,), preferences))
    text = observed or "powersave with energy preference performance"
    assert found.findings == (
        Finding(subject="scaling_governor", observed=text, expected="performance"),
    )


def test_a_governor_is_not_judged_without_the_preference() -> None:
    found = result("KRN-007", _scaling(("powersave",), ("intel_pstate",), None))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("energy preferences",))


def test_a_virtual_machine_has_no_frequency_of_its_own() -> None:
    snapshot = _scaling((), None, None)
    assert result("KRN-007", snapshot).verdict is Verdict.UNKNOWN
    guest = replace(snapshot, host=replace(HOST, frequency_drivers=None, is_vm=True))
    assert result("KRN-007", guest).skipped is not None
    assert result("KRN-008", guest).skipped is not None
    assert result("KRN-007", _scaling((), (), ())).skipped == "the kernel scales no frequency"


def _idling(latency: int, *, is_disabled: bool) -> Snapshot:
    state = IdleState(name="C6", latency_us=latency, is_disabled=is_disabled)
    return replace(healthy(), host=replace(HOST, idle_states=(state,)))


def test_a_deep_sleep_is_a_remark() -> None:
    found = result("KRN-008", _idling(290, is_disabled=False))
    assert (found.verdict, found.findings) == (
        Verdict.PASS,
        (
            Finding(
                subject="idle state C6",
                observed="takes 290 µs to leave",
                expected="off, or below 50 µs",
            ),
        ),
    )


@pytest.mark.parametrize(("latency", "is_disabled"), [(290, True), (49, False)])
def test_a_light_sleep_or_one_that_is_off_is_none(latency: int, is_disabled: bool) -> None:
    assert result("KRN-008", _idling(latency, is_disabled=is_disabled)).findings == ()


def _apart(isolated: str, line: str, default: str | None, policy: str = "static") -> Snapshot:
    whole = healthy()
    assert whole.cpu is not None
    assert whole.kernel is not None
    pool = None if default is None else CpuSet.parse(default)
    return replace(
        whole,
        cpu=replace(whole.cpu, isolated=CpuSet.parse(isolated)),
        kernel=replace(whole.kernel, command_line=line),
        kubelet_state=replace(STATE, cpu=CpuState(policy=policy, default=pool)),
    )


def test_isolated_cpus_in_the_shared_pool_are_found() -> None:
    found = result("KRN-009", _apart("8-9", "ro nohz_full=9-10 quiet", "0-9"))
    assert [(one.subject, one.observed) for one in found.findings] == [
        ("CPUs 8-9 of isolcpus", "in the pool that pods share (cpu_manager_state)"),
        ("CPUs 9 of nohz_full", "in the pool that pods share (cpu_manager_state)"),
    ]


def test_without_a_cpu_policy_all_cpus_are_shared() -> None:
    found = result("KRN-009", _apart("8-9", "", None, policy="none"))
    assert [one.subject for one in found.findings] == ["CPUs 8-9 of isolcpus"]
    loose = replace(
        _apart("8", "", None),
        kubelet_state=None,
        kubelet=replace(SETTINGS, cpu_manager_policy="none"),
    )
    assert len(result("KRN-009", loose).findings) == 1


def test_isolated_cpus_outside_the_pool_pass() -> None:
    assert result("KRN-009", _apart("8-9", "xnohz_full=0", "0-7")).verdict is Verdict.PASS


def test_an_unknown_pool_is_unknown() -> None:
    snapshot = replace(_apart("8", "", None), kubelet_state=None)
    assert result("KRN-009", snapshot).missing == ("CPUs of the shared pool (cpu_manager_state)",)


def test_no_cpu_apart_skips() -> None:
    assert result("KRN-009", _apart("", "nohz_full=,-", "0")).skipped is not None


def _interrupting(cpus: str, numbers: int = 4, reserved: str = "") -> Snapshot:
    whole = healthy()
    assert whole.host is not None
    assert whole.host.interrupts is not None
    first, *others = whole.host.interrupts
    one = Interrupts(hca=first.hca, cpus=CpuSet.parse(cpus), numbers=numbers)
    return replace(
        whole,
        host=replace(whole.host, interrupts=(one, *others)),
        kubelet=replace(SETTINGS, reserved_system_cpus=reserved),
    )


def test_interrupts_on_another_node_are_found() -> None:
    assert result("KRN-010", _interrupting("3,60")).findings == (
        Finding(
            subject="mlx5_0, 4 interrupts",
            observed="some go to CPUs 60",
            expected="CPUs 0-55,112-167 of NUMA node 0",
        ),
    )


@pytest.mark.parametrize(
    "snapshot",
    [
        _interrupting("3,60", numbers=200),
        _interrupting("3,60", reserved="60"),
        _interrupting("0-55"),
    ],
)
def test_interrupts_that_overflow_or_are_reserved_for_are_no_fault(snapshot: Snapshot) -> None:
    assert result("KRN-010", snapshot).verdict is Verdict.PASS


def test_more_interrupts_than_cpus_are_still_a_fault_when_none_is_near() -> None:
    found = result("KRN-010", _interrupting("60-63", numbers=200, reserved="not a list"))
    assert len(found.findings) == 1


def test_an_hca_of_which_no_interrupt_is_known_is_missing() -> None:
    snapshot = replace(healthy(), host=replace(HOST, interrupts=()))
    found = result("KRN-010", snapshot)
    assert found.verdict is Verdict.UNKNOWN
    assert found.missing[0].startswith("interrupts of mlx5_0, mlx5_1, ")
    assert result("KRN-010", replace(snapshot, hcas=())).skipped == "no HCA"


def test_interrupts_on_a_containers_own_cpus_are_a_remark() -> None:
    held = CpuState(policy="static", entries={"uid-1": {"trainer": CpuSet.parse("2-3")}})
    snapshot = replace(_interrupting("3"), kubelet_state=replace(STATE, cpu=held))
    found = result("KRN-011", snapshot)
    assert (found.verdict, found.findings) == (
        Verdict.PASS,
        (
            Finding(
                subject="pod uid-1 container trainer",
                observed="mlx5_0 interrupts its CPUs 3",
                expected="CPUs that no container has for itself",
            ),
        ),
    )


def test_exclusive_cpus_are_told_by_pods_where_the_state_is_not() -> None:
    container = Container(name="c", cpus=CpuSet.parse("3"))
    pod = Pod(namespace="ml", name="job", containers=(container, Container(name="d")))
    snapshot = replace(_interrupting("3"), kubelet_state=None, pods=(pod,))
    found = result("KRN-011", snapshot)
    assert [one.subject for one in found.findings] == ["ml/job container c"]
    whole = replace(pod, cpus=CpuSet.parse("2-4"), containers=(Container(name="c"),))
    found = result("KRN-011", replace(snapshot, pods=(whole,)))
    assert [one.subject for one in found.findings] == ["ml/job"]
    assert result("KRN-011", replace(snapshot, pods=None)).verdict is Verdict.UNKNOWN
    assert result("KRN-011", replace(snapshot, pods=())).skipped is not None
