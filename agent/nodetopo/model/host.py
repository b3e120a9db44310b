"""Settings of the host except its kernel's: runtimes, limits, interrupts, swap."""

from msgspec import Struct

from nodetopo.model.cdi import CdiSpec
from nodetopo.model.limits import Amount, AmountOrUnlimited
from nodetopo.model.numa import CpuSet

UNLIMITED = -1
"""A limit of a process that is none, such as the soft limit of locked memory."""


class SwapArea(Struct, frozen=True, kw_only=True):
    """One line of ``/proc/swaps``, sizes in bytes."""

    name: str
    size: Amount
    used: Amount


class Interrupts(Struct, frozen=True, kw_only=True):
    """The interrupts of one HCA (its function's ``msi_irqs``)."""

    hca: str
    # Union of the CPUs that its interrupts are delivered to (`/proc/irq/N/effective_affinity_list`,
    # else `smp_affinity_list`).
    cpus: CpuSet
    numbers: int  # how many interrupts it has


class RuntimeProcess(Struct, frozen=True, kw_only=True):
    """A running container runtime (containerd, crio) and the limits its containers inherit."""

    name: str  # the program's
    memlock_bytes: AmountOrUnlimited | None = None  # soft limit; −1 is unlimited
    # Hard limit, to which programs can raise theirs (NCCL does).
    open_files: AmountOrUnlimited | None = None


class ContainerToolkit(Struct, frozen=True, kw_only=True):
    """NVIDIA's container toolkit (``/etc/nvidia-container-runtime/config.toml``).

    A setting is ``None`` where the file does not state it and the toolkit's default applies.
    """

    path: str
    # Accept-nvidia-visible-devices-envvar-when-unprivileged
    env_when_unprivileged: bool | None = None
    volume_mounts: bool | None = None  # accept-nvidia-visible-devices-as-volume-mounts
    mode: str | None = None  # nvidia-container-runtime.mode
    version: str | None = None  # of the installed program, where a file states it
    cdi_kind: str | None = None  # nvidia-container-runtime.modes.cdi.default-kind
    # nvidia-container-runtime.modes.cdi.spec-dirs, in ascending precedence
    cdi_dirs: tuple[str, ...] | None = None


class RuntimeConfig(Struct, frozen=True, kw_only=True):
    """containerd's or CRI-O's configuration, drop-ins included."""

    name: str
    path: str  # of the main file
    cdi: bool | None = None  # None if not stated
    default_runtime: str | None = None  # of pods without a RuntimeClass
    nvidia_runtimes: tuple[str, ...] = ()  # those that run NVIDIA's program
    # memlock_bytes, open_files: the limits that the default runtime gives containers; None where it
    # states none
    memlock_bytes: AmountOrUnlimited | None = None
    open_files: AmountOrUnlimited | None = None
    cdi_dirs: tuple[str, ...] | None = None  # in ascending precedence; None: the default
    systemd_cgroup: bool | None = None  # the default runtime leaves cgroups to systemd


class IdleState(Struct, frozen=True, kw_only=True):
    """One CPU idle state (``cpuidle/stateN``)."""

    name: str
    latency_us: int  # to leave the state
    is_disabled: bool  # on every CPU


class DriverHolder(Struct, frozen=True, kw_only=True):
    """A process with device nodes of the NVIDIA driver open."""

    pid: int
    name: str  # the last part of the first argument
    container: str | None = None  # the first 12 digits of its id; None outside of containers


class DriverHolders(Struct, frozen=True, kw_only=True):
    """All such processes."""

    processes: tuple[DriverHolder, ...] = ()
    unread: int = 0  # processes whose open files could not be listed


class HostSettings(Struct, frozen=True, kw_only=True):
    """The settings of the host; ``None`` for a part that was not read."""

    cgroup_version: int | None = None  # 1, or 2 for the unified hierarchy
    swaps: tuple[SwapArea, ...] | None = None
    interrupts: tuple[Interrupts, ...] | None = None
    runtimes: tuple[RuntimeProcess, ...] | None = None  # running ones, by name
    runtime_configs: tuple[RuntimeConfig, ...] | None = None
    cdi_specs: tuple[CdiSpec, ...] | None = None  # by path
    toolkit: ContainerToolkit | None = None
    # /dev/char links to NVIDIA's device nodes; runc needs it after systemd reloads
    char_devices: bool | None = None
    infiniband_devices: tuple[str, ...] | None = None  # names in `/dev/infiniband`, sorted
    # Of the host's network, sorted; None also where only a container's is visible.
    interfaces: tuple[str, ...] | None = None
    gdrcopy: bool | None = None  # gdrdrv is loaded and /dev/gdrdrv exists
    idle_states: tuple[IdleState, ...] | None = None
    # Distinct cpufreq drivers, sorted; empty without frequency scaling.
    frequency_drivers: tuple[str, ...] | None = None
    # Distinct `energy_performance_preference`, sorted.
    energy_preferences: tuple[str, ...] | None = None
    is_vm: bool | None = None  # by CPU flag or DMI
    fabric_manager: bool | None = None  # nv-fabricmanager runs
    # Running programs that do parts of nodetopo's work, sorted: nvidia-device-plugin …
    peer_programs: tuple[str, ...] | None = None
    # Read only while a label of the Node asks for a free driver.
    driver_holders: DriverHolders | None = None
