"""The host's settings as a whole."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.model.codec import decode, encode
from nodetopo.model.host import ContainerToolkit, HostSettings, RuntimeConfig, RuntimeProcess
from nodetopo.model.numa import CpuSet, CpuTopology
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.host.settings import read_host_settings
from tests.probes.host.host_parts import HostTree
from tests.probes.process_files import write_process

CPU = CpuTopology(online=CpuSet.of([0]))
TREE = (
    "dev/\n  nvidia0 =\n"
    "etc/cdi/\n"
    "etc/containerd/\n  config.toml = version = 2\n"
    "etc/nvidia-container-runtime/\n  config.toml = debug = true\n"
    "proc/\n  swaps = Filename Type Size Used Priority\n"
    "proc/irq/\n"
    "sys/class/dmi/id/\n  sys_vendor = NVIDIA\n"
    "sys/fs/cgroup/\n  cgroup.controllers = cpu\n"
    "sys/module/\n"
    "sys/devices/system/cpu/cpufreq/\n"
    "sys/devices/system/cpu/cpu0/cpuidle/\n"
    "sys/class/net/\n  bonding_masters = bond0\n"
    "sys/class/net/lo/\n"
    "sys/class/net/eno1/device/\n"
)


@pytest.fixture
def root(host_tree: HostTree) -> Path:
    """Return the root of a host with everything."""
    root = host_tree(TREE)
    write_process(root / "proc", 7, "/usr/bin/containerd")
    write_process(root / "proc", 8, "nv-fabricmanager")
    return root


def test_all_parts_are_read(root: Path) -> None:
    found = read_host_settings(root / "sys", root / "proc", root, hcas=(), cpu=CPU)
    assert found == (
        HostSettings(
            cgroup_version=2,
            swaps=(),
            interrupts=(),
            runtimes=(RuntimeProcess(name="containerd"),),
            runtime_configs=(
                RuntimeConfig(
                    name="containerd", path="/etc/containerd/config.toml", default_runtime="runc"
                ),
            ),
            cdi_specs=(),
            toolkit=ContainerToolkit(path="/etc/nvidia-container-runtime/config.toml"),
            char_devices=False,
            infiniband_devices=(),
            interfaces=("eno1", "lo"),
            gdrcopy=False,
            idle_states=(),
            frequency_drivers=(),
            energy_preferences=(),
            is_vm=False,
            fabric_manager=True,
            peer_programs=(),
        ),
        (),
    )


def test_where_nothing_can_be_read_there_are_no_settings(host_tree: HostTree) -> None:
    root = host_tree("sys/\nproc/\n")
    found = read_host_settings(root / "sys", root / "proc", root, hcas=None, cpu=None)
    assert found == (None, ())


def test_only_audits_read_them(unpacked: Callable[[str], Path]) -> None:
    root = unpacked("h100x8-nvswitch-2numa-8cx7")
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
    daemon = discover(roots, None, node="n", captured_at=None)
    audit = discover(roots, None, node="n", captured_at=None, counters=True)
    assert daemon.host is None
    interfaces = tuple(sorted((root / "sys/class/net").iterdir()))
    assert audit.host == HostSettings(
        interfaces=tuple(one.name for one in interfaces),
        frequency_drivers=(),
        energy_preferences=(),
        is_vm=False,
    )


def test_settings_survive_a_capture(root: Path) -> None:
    found, _ = read_host_settings(root / "sys", root / "proc", root, hcas=(), cpu=CPU)
    assert decode(encode(Snapshot(host=found))).snapshot.host == found


FILES = (
    *(
        "proc/swaps",
        "proc/7/cmdline",
        "proc/7/stat",
        "proc/7/limits",
        "proc/irq/1/effective_affinity_list",
    ),
    *("etc/containerd/config.toml", "etc/crio/crio.conf", "etc/cdi/a.json", "etc/cdi/b.yaml"),
    *("etc/nvidia-container-runtime/config.toml", "sys/class/dmi/id/sys_vendor"),
    *("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "proc/7/cgroup"),
    "sys/devices/system/cpu/cpu0/cpuidle/state0/latency",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_driver",
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=80)))
def test_no_bytes_in_any_file_break_it(tmp_path: Path, contents: dict[str, bytes]) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(contents.get(name, b""))
    found, _ = read_host_settings(tmp_path / "sys", tmp_path / "proc", tmp_path, hcas=(), cpu=CPU)
    assert found is not None
    assert found.idle_states is not None


def test_huge_files_are_issues(root: Path) -> None:
    names = ("etc/containerd/config.toml", "etc/cdi/a.yaml", "etc/cdi/b.json")
    for name in names:
        with (root / name).open("wb") as file:
            file.truncate(100 << 20)
    found, issues = read_host_settings(root / "sys", root / "proc", root, hcas=(), cpu=CPU)
    assert sorted(issue.subject for issue in issues) == sorted(names)
    assert found is not None
    assert found.runtime_configs is None
