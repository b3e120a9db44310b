"""The host's processes, container runtimes and programs beside us."""

import pytest

from nodetopo.model.host import RuntimeProcess
from nodetopo.probes.host.processes import (
    Process,
    host_processes,
    of_the_node,
    peer_programs,
    runtime_processes,
)
from nodetopo.probes.sysfs.tree import Tree
from tests.probes.host.host_parts import HostTree, files_of
from tests.probes.process_files import write_process

LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max locked memory         {memlock}            {memlock}            bytes     \n"
    "Max open files            1024                 {files}              files     \n"
)


def test_processes_are_read_where_one_is_the_hosts_own(host_tree: HostTree) -> None:
    root = host_tree("proc/\n  modules = x\n")
    write_process(root / "proc", 12, "/usr/bin/kubelet", "--config=/x")
    write_process(root / "proc", 9)
    write_process(root / "proc", 2, comm="kworker\n")
    assert host_processes(Tree(root / "proc")) == (
        Process(pid=12, name="kubelet", arguments=("--config=/x",)),
    )


@pytest.mark.parametrize(("comm", "is_known"), [("kthreadd\n", True), ("sleep\n", False)])
def test_kernel_threads_prove_the_hosts_own_process_namespace(
    comm: str, is_known: bool, host_tree: HostTree
) -> None:
    root = host_tree("proc/\n")
    write_process(root / "proc", 1, "/sbin/init")
    write_process(root / "proc", 2, comm=comm)
    assert (host_processes(Tree(root / "proc")) is not None) == is_known


def test_runtimes_have_the_limits_that_count(host_tree: HostTree) -> None:
    root = host_tree("proc/\n")
    write_process(
        root / "proc", 7, "/usr/bin/crio", limits=LIMITS.format(memlock="8388608", files="524288")
    )
    write_process(
        root / "proc", 5, "containerd", limits=LIMITS.format(memlock="unlimited", files="unlimited")
    )
    write_process(root / "proc", 6, "containerd-shim-runc-v2")
    write_process(root / "proc", 8, "containerd")
    write_process(root / "proc", 11, "containerd", limits="Max locked memory  many  many  bytes\n")
    found = host_processes(Tree(root / "proc"))
    assert found is not None
    assert runtime_processes(files_of(root / "proc"), found) == (
        RuntimeProcess(name="containerd", memlock_bytes=-1, open_files=-1),
        RuntimeProcess(name="containerd"),
        RuntimeProcess(name="containerd"),
        RuntimeProcess(name="crio", memlock_bytes=8_388_608, open_files=524_288),
    )


def test_a_program_in_a_pod_is_no_runtime_of_the_node(host_tree: HostTree) -> None:
    root = host_tree("proc/\n")
    write_process(root / "proc", 5, "containerd", cgroup="0::/system.slice/containerd.service\n")
    write_process(
        root / "proc", 6, "containerd", cgroup="0::/kubepods.slice/kubepods-pod1.slice/x.scope\n"
    )
    write_process(
        root / "proc", 7, "nv-fabricmanager", cgroup="0::/kubepods.slice/kubepods-pod1.slice/y\n"
    )
    write_process(
        root / "proc", 8, "crio", cgroup="0::/../../podb0a3c5d2-52d0-4ec1-8c4e-0f9d3e9c1a77/f00d\n"
    )
    write_process(root / "proc", 9, "crio", cgroup="0::/../../../system.slice/crio.service\n")
    found = host_processes(Tree(root / "proc"))
    assert found is not None
    kept = of_the_node(files_of(root / "proc"), found)
    assert [process.pid for process in kept] == [5, 7, 9]


def test_programs_that_do_our_work_are_named_once() -> None:
    names = ("nvidia-device-plugin", "gpu-feature-discovery", "nvidia-device-plugin", "python3")
    found = [Process(pid=at, name=name, arguments=()) for at, name in enumerate(names)]
    assert peer_programs(found) == ("gpu-feature-discovery", "nvidia-device-plugin")


@pytest.mark.parametrize("program", ["kubelet", "containerd", "crio", "dockerd"])
def test_programs_of_hosts_alone_prove_it_too(program: str, host_tree: HostTree) -> None:
    root = host_tree("proc/\n")
    write_process(root / "proc", 7, f"/usr/bin/{program}")
    found = host_processes(Tree(root / "proc"))
    assert [process.name for process in found or ()] == [program]


def test_the_limit_of_locked_memory_is_the_soft_one(host_tree: HostTree) -> None:
    root = host_tree("proc/\n")
    limits = "Max locked memory         65536                131072               bytes     \n"
    write_process(root / "proc", 5, "containerd", limits=limits)
    found = host_processes(Tree(root / "proc")) or ()
    assert runtime_processes(files_of(root / "proc"), found) == (
        RuntimeProcess(name="containerd", memlock_bytes=65_536),
    )
