"""Settings of a composed host: container runtime, toolkit, CDI, idle states, interrupts.

A machine whose kubelet gives exclusive CPUs was tuned by somebody, and so was the rest of it: no
deep idle states, no limit of locked memory, a toolkit that hands out GPUs to nobody who asks for
them by a variable. Others are as their packages install them. Latencies: kernel
drivers/idle/intel_idle.c, and `cpupower idle-info` in public.
"""

from collections.abc import Collection, Iterable, Iterator

from nodetopo.model.cdi import CdiSpec
from nodetopo.model.gpu import Gpu
from nodetopo.model.host import (
    ContainerToolkit,
    HostSettings,
    IdleState,
    Interrupts,
    RuntimeConfig,
    RuntimeProcess,
)
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot
from tests.compose.machine import Processor

VECTORS = 2
"""Interrupts of an HCA that traffic raises; real ones have as many as their node has CPUs."""

PERFORMANCE = "performance"
LOOPBACK = "lo"
_MEMLOCK = 8 << 20
"""systemd's DefaultLimitMEMLOCK since version 250 (systemd NEWS), in bytes."""

_OPEN_FILES = 524_288
"""systemd's hard limit since version 240 (systemd NEWS)."""

_WITHOUT_HWP = 79
"""Model number of Broadwell, whose CPUs do not choose frequencies by themselves."""

_POLL = IdleState(name="POLL", latency_us=0, is_disabled=False)
_SHALLOW = {
    "GenuineIntel": (("C1", 1), ("C1E", 2)),
    "AuthenticAMD": (("C1", 1),),
    "ARM": (("LPI-0", 1),),
    None: (("snooze", 0), ("stop0_lite", 1), ("stop0", 2)),
}
_DEEP = {"GenuineIntel": (("C6", 170),), "AuthenticAMD": (("C2", 400),)}
"""Idle states by the CPU's vendor, with their latency in µs; POWER9 has none."""


def is_tuned(snapshot: Snapshot) -> bool:
    """Return whether somebody set this machine up for exclusive CPUs."""
    return snapshot.kubelet is not None and snapshot.kubelet.cpu_manager_policy == "static"


def host_settings(
    snapshot: Snapshot, processor: Processor, interfaces: Iterable[str] = ()
) -> HostSettings:
    """Return the settings that fit the rest of *snapshot*.

    Args:
        interfaces: names of network interfaces that no HCA has.
    """
    tuned, modules = is_tuned(snapshot), (snapshot.kernel.modules if snapshot.kernel else None)
    told = snapshot.cpu.is_virtual if snapshot.cpu else None
    is_virtual = bool(told)
    return HostSettings(
        cgroup_version=2,
        swaps=(),
        interrupts=tuple(_interrupts(snapshot)),
        runtimes=(
            RuntimeProcess(
                name="containerd", memlock_bytes=-1 if tuned else _MEMLOCK, open_files=_OPEN_FILES
            ),
        ),
        runtime_configs=(
            RuntimeConfig(
                name="containerd",
                path="/etc/containerd/config.toml",
                cdi=True,
                default_runtime="runc",
                nvidia_runtimes=("nvidia",),
            ),
        ),
        cdi_specs=(_cdi_spec(snapshot),) if snapshot.gpus else None,
        toolkit=ContainerToolkit(
            path="/etc/nvidia-container-runtime/config.toml",
            env_when_unprivileged=False if tuned else None,
            mode="auto",
            version="1.19.1",
        ),
        char_devices=True if snapshot.gpus else None,
        infiniband_devices=tuple(sorted(_infiniband_devices(snapshot))),
        interfaces=_interfaces({*interfaces, *_netdevs(snapshot)}),
        gdrcopy="gdrdrv" in (modules or ()),
        idle_states=None if is_virtual else _idle_states(processor, is_deep=not tuned),
        frequency_drivers=_frequency_drivers(snapshot, processor),
        energy_preferences=_energy_preferences(snapshot, processor),
        is_vm=None if told is None and snapshot.product_name is None else is_virtual,
        fabric_manager=bool(snapshot.nvswitches or snapshot.management_hcas),
        peer_programs=(),
    )


def device_names(gpu: Gpu) -> Iterator[str]:
    """Yield the names of *gpu* in the CDI specification, those of its MIG devices in its place."""
    instances = gpu.mig.instances if gpu.mig is not None else ()
    if instances:
        yield from (one.uuid for one in instances)
    elif gpu.uuid is not None:
        yield from (str(gpu.index), gpu.uuid)


def _cdi_spec(snapshot: Snapshot) -> CdiSpec:
    names = (name for gpu in snapshot.gpus for name in device_names(gpu))
    return CdiSpec(
        path="/run/cdi/nvidia.yaml",
        kind="nvidia.com/gpu",
        devices=(*names, "all"),
        driver_version=snapshot.driver_version,
    )


def _infiniband_devices(snapshot: Snapshot) -> Iterator[str]:
    hcas = (*(snapshot.hcas or ()), *(snapshot.management_hcas or ()))
    for hca in hcas:
        yield from hca.char_devices
    if hcas:
        yield "rdma_cm"


def _interfaces(names: Collection[str]) -> tuple[str, ...] | None:
    """Return *names* as they are read; ``None`` where none of a device is among them."""
    return tuple(sorted((*names, LOOPBACK))) if names else None


def _netdevs(snapshot: Snapshot) -> Iterator[str]:
    hcas = (*(snapshot.hcas or ()), *(snapshot.management_hcas or ()))
    for hca in hcas:
        yield from (netdev.name for netdev in hca.netdevs)


def _idle_states(processor: Processor, *, is_deep: bool) -> tuple[IdleState, ...]:
    vendor = processor.vendor
    words = (*_SHALLOW[vendor], *(_DEEP.get(vendor or "", ()) if is_deep else ()))
    states = (IdleState(name=name, latency_us=us, is_disabled=False) for name, us in words)
    return (_POLL, *states) if processor.machine == "x86_64" else tuple(states)


def _frequency_drivers(snapshot: Snapshot, processor: Processor) -> tuple[str, ...] | None:
    governors = snapshot.cpu.governors if snapshot.cpu else ()
    if not governors:
        return None
    if processor.vendor == "GenuineIntel":
        return ("intel_pstate" if PERFORMANCE in governors else "intel_cpufreq",)
    by_machine = {"aarch64": "cppc_cpufreq", "ppc64le": "powernv-cpufreq"}
    return (by_machine.get(processor.machine, "acpi-cpufreq"),)


def _energy_preferences(snapshot: Snapshot, processor: Processor) -> tuple[str, ...] | None:
    drivers = _frequency_drivers(snapshot, processor)
    if drivers is None:
        return None
    chooses = drivers == ("intel_pstate",) and processor.model_number != _WITHOUT_HWP
    return (PERFORMANCE,) if chooses else ()


def _interrupts(snapshot: Snapshot) -> Iterable[Interrupts]:
    """Yield those of each function, on CPUs of its node that no neighbour's go to."""
    nodes = {node.id: tuple(node.cpus) for node in snapshot.numa_nodes or ()}
    everywhere = tuple(snapshot.cpu.online) if snapshot.cpu else ()
    seen: list[object] = []
    taken: dict[int | None, int] = {}
    for hca in snapshot.hcas or ():
        if hca.pci is None or hca.pci in seen:
            continue
        seen.append(hca.pci)
        near = everywhere if hca.numa_node is None else nodes[hca.numa_node]
        first = taken.get(hca.numa_node, 0)
        taken[hca.numa_node] = first + VECTORS
        cpus = CpuSet.of(near[(first + at) % len(near)] for at in range(VECTORS))
        yield Interrupts(hca=hca.name, cpus=cpus, numbers=VECTORS)
