"""Idle states, frequency scaling and hypervisors."""

import pytest
from msgspec.structs import replace

from nodetopo.model.host import IdleState
from nodetopo.model.numa import CpuSet, CpuTopology
from nodetopo.probes.host.settings import (
    energy_preferences,
    frequency_drivers,
    idle_states,
    is_virtual,
)
from tests.probes.host.host_parts import HostTree, files_of

CPU = CpuTopology(online=CpuSet.parse("1-2"))
CPUS = "sys/devices/system/cpu"


def _state(cpu: int, number: int, name: str, latency: str, disable: str) -> str:
    return (
        f"{CPUS}/cpu{cpu}/cpuidle/state{number}/\n"
        f"  name = {name}\n  latency = {latency}\n  disable = {disable}\n"
    )


def test_an_idle_state_is_off_where_it_is_off_on_every_cpu(host_tree: HostTree) -> None:
    root = host_tree(
        _state(1, 0, "POLL", "0", "0")
        + _state(2, 0, "POLL", "0", "0")
        + _state(1, 1, "C1E", "10", "1")
        + _state(2, 1, "C1E", "10", "0")
        + _state(1, 2, "C6", "290", "1")
        + _state(2, 2, "C6", "290", "1")
    )
    assert idle_states(files_of(root / "sys"), CPU) == (
        IdleState(name="POLL", latency_us=0, is_disabled=False),
        IdleState(name="C1E", latency_us=10, is_disabled=False),
        IdleState(name="C6", latency_us=290, is_disabled=True),
    )


def test_an_idle_state_without_a_latency_is_left_out(host_tree: HostTree) -> None:
    files = files_of(host_tree(_state(1, 0, "C6", "long", "0")) / "sys")
    assert idle_states(files, CPU) == ()
    assert len(files.issues) == 1


@pytest.mark.parametrize("cpu", [None, CPU, CpuTopology(online=CpuSet())])
def test_without_cpuidle_idle_states_are_unknown(
    cpu: CpuTopology | None, host_tree: HostTree
) -> None:
    assert idle_states(files_of(host_tree("sys/\n") / "sys"), cpu) is None


def test_drivers_and_preferences_are_those_of_all_policies(host_tree: HostTree) -> None:
    driver = "  scaling_driver = intel_pstate\n"
    files = files_of(
        host_tree(
            f"{CPUS}/cpufreq/policy0/\n{driver}  energy_performance_preference = performance\n"
            f"{CPUS}/cpufreq/policy1/\n{driver}  energy_performance_preference = balance_power\n"
            f"{CPUS}/cpufreq/boost/\n  scaling_driver = no\n"
        )
        / "sys"
    )
    assert frequency_drivers(files) == ("intel_pstate",)
    assert energy_preferences(files) == ("balance_power", "performance")


def test_no_frequency_scaling_differs_from_unknown(host_tree: HostTree) -> None:
    root = host_tree(f"{CPUS}/cpufreq/\nproc/\n")
    files = files_of(root / "sys")
    assert (frequency_drivers(files), energy_preferences(files)) == ((), ())
    assert frequency_drivers(files_of(root / "proc")) is None


@pytest.mark.parametrize(
    ("flag", "maker", "product", "expected"),
    [
        (True, None, None, True),
        (False, "Dell Inc.", "PowerEdge XE9680", False),
        (False, "QEMU", "Standard PC (Q35 + ICH9, 2009)", True),
        (None, "NVIDIA", "GB200 NVL", False),
        (None, "Amazon EC2", "p6e-gb200.36xlarge", True),
        (None, "Amazon EC2", "c7g.metal", False),
        (None, "Intel", "Xeon Server", False),
        (None, None, None, None),
        (False, None, None, False),
    ],
)
def test_a_virtual_machine_is_known_by_cpu_flag_or_by_maker(
    flag: bool | None,
    maker: str | None,
    product: str | None,
    expected: bool | None,
    host_tree: HostTree,
) -> None:
    lines = {"sys_vendor": maker, "product_name": product}
    text = "".join(f"  {name} = {word}\n" for name, word in lines.items() if word)
    files = files_of(host_tree(f"sys/class/dmi/id/\n{text}") / "sys")
    assert is_virtual(files, replace(CPU, is_virtual=flag)) is expected
