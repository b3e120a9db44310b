"""Rules on how fast CPUs run, and how deep they sleep."""

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import missing, of_host
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.host import IdleState
from agent.model.snapshot import Snapshot

DEEP_US = 50
"""Microseconds to leave a state from which on it counts as deep. Intel's C1E takes 2 to 14, C6 of
its servers 85 to 290 (kernel drivers/idle/intel_idle.c); AMD's C2 some hundred by ACPI."""

_PERFORMANCE = "performance"
_SELF_CHOOSING = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose governor ``powersave`` leaves the choice to the CPU, by its energy preference
(kernel admin-guide/pm/intel_pstate.rst and amd-pstate.rst)."""

_ADMIN = "https://docs.kernel.org/admin-guide/pm"


def _governors(snapshot: Snapshot) -> tuple[str, ...]:
    return () if snapshot.cpu is None else snapshot.cpu.governors


def _without_scaling(snapshot: Snapshot) -> str | None:
    if not _governors(snapshot):
        if of_host(snapshot, lambda host: host.frequency_drivers) == ():
            return "the kernel scales no frequency"
        if of_host(snapshot, lambda host: host.is_vm):
            return "a virtual machine's host chooses frequencies"
    return no_gpus(snapshot)


def _missing_governors(snapshot: Snapshot) -> Inputs:
    names = _governors(snapshot)
    place = "devices/system/cpu/cpufreq"
    absent = missing(snapshot, names or None, "frequency governors", place)
    if not names or set(names) == {_PERFORMANCE}:
        return absent
    preferences = of_host(snapshot, lambda host: host.energy_preferences)
    return missing(snapshot, preferences, "energy preferences", place)


def _slow_governors(snapshot: Snapshot) -> tuple[Finding, ...]:
    host, names = snapshot.host, _governors(snapshot)
    preferences = None if host is None else host.energy_preferences
    drivers = set() if host is None else set(host.frequency_drivers or ())
    chooses = bool(drivers) and drivers.issubset(_SELF_CHOOSING)
    slow = [name for name in names if name != _PERFORMANCE]
    if not slow or preferences is None or (chooses and set(preferences) == {_PERFORMANCE}):
        return ()
    preferred = f" with energy preference {', '.join(preferences)}" if preferences else ""
    observed = f"{', '.join(slow)}{preferred}"
    return (Finding(subject="scaling_governor", observed=observed, expected=_PERFORMANCE),)


def _idle_states(snapshot: Snapshot) -> tuple[IdleState, ...] | None:
    return of_host(snapshot, lambda host: host.idle_states)


def _without_idling(snapshot: Snapshot) -> str | None:
    if of_host(snapshot, lambda host: host.is_vm):
        return "a virtual machine's host puts CPUs to sleep"
    return no_gpus(snapshot)


def _missing_idle_states(snapshot: Snapshot) -> Inputs:
    return missing(snapshot, _idle_states(snapshot), "idle states", "devices/system/cpu/cpu")


def _deep_states(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"idle state {state.name}",
            observed=f"takes {state.latency_us} µs to leave",
            expected=f"off, or below {DEEP_US} µs",
        )
        for state in _idle_states(snapshot) or ()
        if state.latency_us >= DEEP_US and not state.is_disabled
    )


RULES: tuple[Rule, ...] = (
    Rule(
        code="KRN-007",
        claim="the CPUs run at full frequency",
        why="A CPU that clocks down between two kernel launches makes every GPU of the job wait "
        "for it.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_governors,
        check=_slow_governors,
        skips=_without_scaling,
        remedy="run `cpupower frequency-set -g performance`, or choose tuned's profile "
        "throughput-performance",
        reference=f"{_ADMIN}/cpufreq.html#generic-scaling-governors",
    ),
    Rule(
        code="KRN-008",
        claim="no CPU sleeps so deep that waking it takes long",
        why="Small messages wait for a CPU to wake up; a program may ask for less by "
        "/dev/cpu_dma_latency, which is not seen here.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_idle_states,
        check=_deep_states,
        skips=_without_idling,
        remedy=f"where latency matters, run `cpupower idle-set -D {DEEP_US}`, or choose tuned's "
        "profile latency-performance",
        reference=f"{_ADMIN}/cpuidle.html",
    ),
)
