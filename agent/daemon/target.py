"""What the daemon runs on: which machine it reads and which kubelet it serves.

Plain settings mean this node and its kubelet, and nothing is ever simulated. A named machine
or a snapshot file is simulated; its GPUs do not exist, so they are offered to an embedded
stand-in, not to the kubelet of the host, unless a directory other than the host's own was
asked for by name (a lab).
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from agent.config.settings import HOST_DEVICE_PLUGINS, Settings, roots
from agent.deviceplugin.fake_kubelet import StandInKubelet
from agent.deviceplugin.sockets import KUBELET_SOCKET
from agent.errors import InputError, NvmlUnavailable
from agent.machines.bundled import DEFAULT, machine
from agent.model.codec import MAX_BYTES, decode
from agent.model.nvml_event import NvmlEvent, NvmlStatus
from agent.model.pci import PciAddress
from agent.model.snapshot import Snapshot
from agent.probes.node import NodeReader
from agent.probes.nvml.supervisor import NvmlSupervisor
from agent.probes.sysfs.kernel_log import KernelLog

if TYPE_CHECKING:
    from agent.probes.kubelet.api import RunningKubelet

OnEvents: TypeAlias = Callable[[Sequence[NvmlEvent]], None]
"""Takes what GPUs report; it is called by threads that must not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is read.

    Attributes:
        read: returns the machine as it is now.
        reread: makes the next ``read`` a whole one; nothing to do for a simulated machine.
        nvml: returns how the last attempt to read NVML ended.
    """

    read: Callable[[], Snapshot]
    reread: Callable[[], None]
    nvml: Callable[[], NvmlStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The machine and the kubelet of one run.

    Attributes:
        simulated: the name of the simulated machine, ``None`` on real hardware.
        socket_dir: where the kubelet listens.
        stand_in: the embedded kubelet; ``None`` with a real one.
    """

    machine: Machine
    simulated: str | None
    socket_dir: Path
    stand_in: StandInKubelet | None = None

    @property
    def is_real(self) -> bool:
        """Whether the machine is the one this runs on, so that its kubelet's pods are there."""
        return self.simulated is None

    def kubelet_has(self, resource: str) -> bool:
        """Tell whether the kubelet took the list; a real one does so once it is registered."""
        return self.stand_in is None or self.stand_in.view(resource) is not None

    def preferred(self, size: int, resource: str) -> tuple[str, ...] | None:
        """Ask as a kubelet would, over the socket; ``None`` with a real one."""
        if self.stand_in is None:
            return None
        return self.stand_in.preferred(size, resource=resource)


@contextmanager
def set_up(settings: Settings, on_events: OnEvents | None = None) -> Iterator[Scene]:
    """Yield the scene that *settings* ask for, and clear it away afterwards.

    What the GPUs of a real machine report between scans goes to *on_events*, if given.

    Raises:
        InputError: the machine or the snapshot cannot be used.
    """
    with ExitStack() as stack:
        named = _named(settings)
        if named is None and settings.or_simulate and not _has_gpu(settings):
            named = DEFAULT, machine(DEFAULT)
        found = _live(settings, on_events, stack) if named is None else _fixed(settings, named[1])
        socket_dir, stand_in = _kubelet(settings, stack, is_simulated=named is not None)
        yield Scene(
            machine=found,
            simulated=named[0] if named else None,
            socket_dir=socket_dir,
            stand_in=stand_in,
        )


def _named(settings: Settings) -> tuple[str, Snapshot] | None:
    if settings.machine is not None:
        return settings.machine, machine(settings.machine)
    if settings.snapshot is not None:
        return settings.snapshot.name, _snapshot_file(settings.snapshot)
    return None


def _snapshot_file(path: Path) -> Snapshot:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return decode(content.decode("utf-8")).snapshot
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}", "give a snapshot file") from None


def _has_gpu(settings: Settings) -> bool:
    supervisor = NvmlSupervisor(settings.nvml_library)
    try:
        return len(supervisor.scan().gpus) > 0
    except NvmlUnavailable:
        return False
    finally:
        supervisor.close()


def _fixed(settings: Settings, snapshot: Snapshot) -> Machine:
    here = replace(snapshot, node=settings.node_name)
    return Machine(read=lambda: here, reread=lambda: None, nvml=NvmlStatus)


def _live(settings: Settings, on_events: OnEvents | None, stack: ExitStack) -> Machine:
    reader = NodeReader(
        roots(settings),
        node=settings.node_name,
        nvml_library=settings.nvml_library,
        on_events=on_events,
    )
    stack.callback(reader.close)
    names: dict[PciAddress, str] = {}
    kubelet = _running_kubelet(settings)

    def read() -> Snapshot:
        snapshot = reader.read()
        if kubelet is not None:
            snapshot = kubelet.put_into(snapshot)
        names.update({gpu.pci: gpu.uuid for gpu in snapshot.gpus if gpu.pci and gpu.uuid})
        return snapshot

    if settings.kernel_log is not None and on_events is not None:
        log = KernelLog(settings.kernel_log, on_events, names.get)
        stack.callback(log.close)
        log.start()
    return Machine(read=read, reread=reader.reread, nvml=lambda: reader.nvml_status)


def _running_kubelet(settings: Settings) -> "RunningKubelet | None":
    """Return what asks the kubelet for its settings, if its address is known."""
    if settings.kubelet_url is None:
        return None
    from agent.probes.kubelet.api import (  # noqa: PLC0415 - TLS that few need
        RunningKubelet,
        kubelet_at,
    )

    api = kubelet_at(
        settings.kubelet_url, settings.kubelet_ca_file, insecure=settings.kubelet_insecure_tls
    )
    return RunningKubelet(api.configz, settings.pod_resources_socket, clock=time.monotonic)


def _kubelet(
    settings: Settings, stack: ExitStack, *, is_simulated: bool
) -> tuple[Path, StandInKubelet | None]:
    """Return where to register; GPUs that do not exist never reach the host's own kubelet."""
    asked = settings.device_plugin_dir
    is_host = os.path.realpath(asked) == os.path.realpath(HOST_DEVICE_PLUGINS)
    is_missing = settings.or_simulate and not (asked / KUBELET_SOCKET).is_socket()
    if not is_missing and not (is_simulated and is_host):
        return asked, None
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodetopo-")))
    stand_in = StandInKubelet(directory)
    stack.callback(stand_in.stop)
    return directory, stand_in
