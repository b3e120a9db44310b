"""Settings of the host except its kernel's: runtimes, limits, interrupts, swap."""

from dataclasses import dataclass

from nodetopo.model.cdi import CdiSpec
from nodetopo.model.limits import Amount, AmountOrUnlimited
from nodetopo.model.numa import CpuSet

UNLIMITED = -1
"""A limit of a process that is none, such as the soft limit of locked memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapArea:
    """One line of ``/proc/swaps``, sizes in bytes."""

    name: str
    size: Amount
    used: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupts:
    """The interrupts of one HCA (its function's ``msi_irqs``).

    Attributes:
        hca: name of the HCA.
        cpus: union of the CPUs that its interrupts are delivered to
            (``/proc/irq/N/effective_affinity_list``, else ``smp_affinity_list``).
        numbers: how many interrupts it has.
    """

    hca: str
    cpus: CpuSet
    numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeProcess:
    """A running container runtime (containerd, crio) and the limits its containers inherit.

    Attributes:
        name: of the program.
        memlock_bytes: soft limit; −1 is unlimited, ``None`` was not read.
        open_files: hard limit, to which programs can raise theirs (NCCL does).
    """

    name: str
    memlock_bytes: AmountOrUnlimited | None = None
    open_files: AmountOrUnlimited | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerToolkit:
    """NVIDIA's container toolkit (``/etc/nvidia-container-runtime/config.toml``).

    A setting is ``None`` where the file does not state it and the toolkit's default applies.

    Attributes:
        env_when_unprivileged: ``accept-nvidia-visible-devices-envvar-when-unprivileged``.
        volume_mounts: ``accept-nvidia-visible-devices-as-volume-mounts``.
        mode: ``nvidia-container-runtime.mode``.
        version: of the installed program, where a file states it.
        cdi_kind: ``nvidia-container-runtime.modes.cdi.default-kind``.
        cdi_dirs: ``nvidia-container-runtime.modes.cdi.spec-dirs``, in ascending precedence.
    """

    path: str
    env_when_unprivileged: bool | None = None
    volume_mounts: bool | None = None
    mode: str | None = None
    version: str | None = None
    cdi_kind: str | None = None
    cdi_dirs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """containerd's or CRI-O's configuration, drop-ins included.

    Attributes:
        path: of its main file.
        cdi: whether CDI is on; ``None`` if not stated.
        default_runtime: name of the runtime of pods without a RuntimeClass.
        nvidia_runtimes: names of the runtimes that run NVIDIA's program.
        memlock_bytes, open_files: the same limits, which the default runtime gives containers
            instead of its own; ``None`` where it states none.
        cdi_dirs: directories of CDI specifications, in ascending precedence; ``None`` where the
            default applies.
        systemd_cgroup: whether its default runtime leaves control groups to systemd; ``None`` where
            that is not known.
    """

    name: str
    path: str
    cdi: bool | None = None
    default_runtime: str | None = None
    nvidia_runtimes: tuple[str, ...] = ()
    memlock_bytes: AmountOrUnlimited | None = None
    open_files: AmountOrUnlimited | None = None
    cdi_dirs: tuple[str, ...] | None = None
    systemd_cgroup: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleState:
    """One CPU idle state (``cpuidle/stateN``).

    Attributes:
        latency_us: the time to leave it, in microseconds.
        is_disabled: on every CPU.
    """

    name: str
    latency_us: int
    is_disabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverHolder:
    """A process with device nodes of the NVIDIA driver open.

    Attributes:
        name: last part of its first argument.
        container: the first 12 digits of its container's id; ``None`` outside of containers.
    """

    pid: int
    name: str
    container: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverHolders:
    """All such processes.

    Attributes:
        unread: processes whose open files could not be listed.
    """

    processes: tuple[DriverHolder, ...] = ()
    unread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The settings of the host; ``None`` for a part that was not read.

    Attributes:
        cgroup_version: 1, or 2 for the unified hierarchy.
        runtimes: the running container runtimes, by name.
        cdi_specs: by path; empty where there are none.
        char_devices: whether ``/dev/char`` has links to NVIDIA's device nodes, which runc needs
            after systemd reloads.
        infiniband_devices: names in ``/dev/infiniband``, sorted.
        interfaces: names of the network interfaces of the host's network, sorted; ``None`` also
            where only a container's network is visible.
        gdrcopy: whether the module gdrdrv is loaded and ``/dev/gdrdrv`` there.
        frequency_drivers: the distinct cpufreq drivers, sorted; empty where the kernel scales no
            CPU's frequency.
        energy_preferences: the distinct ``energy_performance_preference``, sorted; empty where no
            driver has one.
        is_vm: whether this is a virtual machine, by CPU flag or DMI.
        fabric_manager: whether the program nv-fabricmanager runs.
        peer_programs: running programs that do parts of our work, by command name, sorted:
            ``nvidia-device-plugin``, ``gpu-feature-discovery`` …
        driver_holders: who has the NVIDIA driver open; read only while a label of the Node asks
            for a free driver.
    """

    cgroup_version: int | None = None
    swaps: tuple[SwapArea, ...] | None = None
    interrupts: tuple[Interrupts, ...] | None = None
    runtimes: tuple[RuntimeProcess, ...] | None = None
    runtime_configs: tuple[RuntimeConfig, ...] | None = None
    cdi_specs: tuple[CdiSpec, ...] | None = None
    toolkit: ContainerToolkit | None = None
    char_devices: bool | None = None
    infiniband_devices: tuple[str, ...] | None = None
    interfaces: tuple[str, ...] | None = None
    gdrcopy: bool | None = None
    idle_states: tuple[IdleState, ...] | None = None
    frequency_drivers: tuple[str, ...] | None = None
    energy_preferences: tuple[str, ...] | None = None
    is_vm: bool | None = None
    fabric_manager: bool | None = None
    peer_programs: tuple[str, ...] | None = None
    driver_holders: DriverHolders | None = None
