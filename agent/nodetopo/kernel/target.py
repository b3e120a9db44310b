"""The daemon's target: the machine it reads and the kubelet it serves.

Plain settings mean this node and its kubelet, and nothing is ever simulated. A named machine or a
snapshot file is simulated; its GPUs do not exist, so they are offered to an embedded stand-in, not
to the kubelet of the host, unless a setting names another directory (a lab).
"""

import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.deviceplugin.conflict import other_plugin
from nodetopo.deviceplugin.sockets import KUBELET_SOCKET
from nodetopo.errors import InputError, NvmlUnavailable, UnreadableError
from nodetopo.kernel.settings.own import HOST_DEVICE_PLUGINS, KernelSettings, roots
from nodetopo.machines.bundled import DEFAULT, machine
from nodetopo.model.codec import MAX_BYTES, decode
from nodetopo.model.kubernetes import MIG_RESOURCES
from nodetopo.model.nvml_event import NvmlEvent, NvmlStatus
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.node import NodeReader
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.probes.sysfs.kernel_log import KernelLog

if TYPE_CHECKING:  # only a simulated machine loads it
    from nodetopo.deviceplugin.fake_kubelet import FakeKubelet

ANSWER_S = 2.0
"""How long `--once` waits for the kubelet's list; it answers from memory."""

OnEvents: TypeAlias = Callable[[Sequence[NvmlEvent]], None]
"""Takes GPU events; called by threads that must not wait."""


class Machine(Struct, frozen=True, kw_only=True):
    """The machine to read."""

    read: Callable[[], Snapshot]  # returns the machine's current state
    # Makes the next ``read`` complete; does nothing for a simulated machine.
    reread: Callable[[], None]
    nvml: Callable[[], NvmlStatus]  # returns the result of the last attempt to read NVML
    # Closes NVML until the next ``read``, and returns whether it succeeded.
    release: Callable[[], bool] = lambda: True
    # As ``read``, without NVML, whose issue has the given cause; ``None`` where the machine has
    # none.
    read_closed: Callable[[str], Snapshot] | None = None


class Target(Struct, frozen=True, kw_only=True):
    """The machine and the kubelet of one run."""

    machine: Machine
    simulated: str | None  # the name of the simulated machine, ``None`` on real hardware
    socket_dir: Path  # where the kubelet listens
    fake_kubelet: "FakeKubelet | None" = None  # the embedded kubelet; ``None`` with a real one
    # Another device plugin that already serves the node's kubelet, as a sentence; *once* then
    # registers with the embedded kubelet and publishes nothing. ``None`` for none.
    served_by: str | None = None

    @property
    def is_real(self) -> bool:
        """Whether the machine is this host, so that its kubelet's pods run here."""
        return self.simulated is None

    @property
    def is_demo(self) -> bool:
        """Whether neither machine nor kubelet exist: simulated pods harm nobody."""
        return self.simulated is not None and self.fake_kubelet is not None

    def kubelet_has(self, resource: str) -> bool:
        """Return whether the kubelet has the device list; a real one gets it at registration."""
        return self.fake_kubelet is None or self.fake_kubelet.view(resource) is not None

    def preferred(self, size: int, resource: str) -> tuple[str, ...] | None:
        """Ask for devices over the socket as a kubelet would; ``None`` with a real one."""
        if self.fake_kubelet is None:
            return None
        return self.fake_kubelet.preferred(size, resource=resource)


@contextmanager
def open_target(
    settings: KernelSettings,
    on_events: OnEvents | None = None,
    ours: Collection[str] = (),
) -> Iterator[Target]:
    """Yield the target described by *settings*, and clean it up afterwards.

    *on_events* gets the events of a real machine's GPUs between scans. *ours* are the resources
    that the daemon would offer.
    """
    with ExitStack() as stack:
        simulated, snapshot = _simulated(settings)
        if snapshot is None:
            source = _live_machine(settings, on_events, stack)
        else:
            fixed = replace(snapshot, node=settings.node_name)
            source = Machine(read=lambda: fixed, reread=lambda: None, nvml=NvmlStatus)

        # GPUs that do not exist never reach the host's own kubelet.
        directory = settings.device_plugin_dir
        fake_kubelet: FakeKubelet | None = None
        is_host = os.path.realpath(directory) == os.path.realpath(HOST_DEVICE_PLUGINS)
        is_missing = settings.or_simulate and not (directory / KUBELET_SOCKET).is_socket()
        served_by = None
        if settings.once and not is_missing:
            served_by = _served_by(settings, directory, ours, is_real=simulated is None)
        if is_missing or served_by is not None or (simulated is not None and is_host):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodetopo-")))
            fake_kubelet = _fake_kubelet(directory)
            stack.callback(fake_kubelet.stop)
        yield Target(
            machine=source,
            simulated=simulated,
            socket_dir=directory,
            fake_kubelet=fake_kubelet,
            served_by=served_by,
        )


def _served_by(
    settings: KernelSettings, directory: Path, ours: Collection[str], *, is_real: bool
) -> str | None:
    """Return the device plugin that already serves the kubelet in *directory*, or ``None``.

    The end of a second plugin of a resource takes the devices of the first one away, for some time
    at least. So both sockets and resources that a real machine's kubelet has count.
    """
    if (reason := other_plugin(directory)) is not None or not is_real:
        return reason
    from nodetopo.probes.kubelet.podresources import PodResources  # noqa: PLC0415 - only for --once

    kubelet = PodResources(settings.pod_resources_socket, timeout_s=ANSWER_S)
    try:
        listed = {device.resource for device in kubelet.offer().devices}
    except UnreadableError:
        return None
    finally:
        kubelet.close()
    taken = sorted(name for name in listed if name in ours or name.startswith(MIG_RESOURCES))
    return f"a device plugin offers {', '.join(taken)} to the kubelet already" if taken else None


def _fake_kubelet(directory: Path) -> "FakeKubelet":
    from nodetopo.deviceplugin.fake_kubelet import (  # noqa: PLC0415 - memory of few nodes
        FakeKubelet,
    )

    return FakeKubelet(directory)


def _simulated(settings: KernelSettings) -> tuple[str | None, Snapshot | None]:
    """Return the name and the snapshot of the machine to simulate; ``None`` twice for none."""
    if settings.machine is not None:
        return settings.machine, machine(settings.machine)
    if (path := settings.snapshot) is not None:
        from nodetopo.formats.support_archive import (  # noqa: PLC0415 - gzip, tar
            is_archive,
            snapshot_text,
        )

        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            text = snapshot_text(content) if is_archive(content) else content.decode("utf-8")
            return path.name, decode(text).snapshot
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", "check the path") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8: {error}", "give a snapshot file") from None
    if settings.or_simulate and not _has_gpu(settings):
        return DEFAULT, machine(DEFAULT)
    return None, None


def _has_gpu(settings: KernelSettings) -> bool:
    supervisor = NvmlSupervisor(settings.nvml_library)
    try:
        return len(supervisor.scan().gpus) > 0
    except NvmlUnavailable:
        return False
    finally:
        supervisor.close()


def _live_machine(
    settings: KernelSettings, on_events: OnEvents | None, stack: ExitStack
) -> Machine:
    reader = NodeReader(
        roots(settings),
        node=settings.node_name,
        nvml_library=settings.nvml_library,
        on_events=on_events,
    )
    stack.callback(reader.close)
    kubelet = None
    if settings.kubelet_url is not None:
        from nodetopo.probes.kubelet.api import (  # noqa: PLC0415 - TLS that few need
            RunningKubelet,
            kubelet_at,
        )

        api = kubelet_at(
            settings.kubelet_url, settings.kubelet_ca_file, insecure=settings.kubelet_insecure_tls
        )
        kubelet = RunningKubelet(api.configz, settings.pod_resources_socket, clock=time.monotonic)
    uuids: dict[PciAddress, str] = {}

    def read() -> Snapshot:
        snapshot = reader.read()
        if kubelet is not None:
            snapshot = kubelet.put_into(snapshot)
        uuids.update({gpu.pci: gpu.uuid for gpu in snapshot.gpus if gpu.pci and gpu.uuid})
        return snapshot

    if settings.kernel_log is not None and on_events is not None:
        log = KernelLog(settings.kernel_log, on_events, uuids.get)
        stack.callback(log.close)
        log.start()
    return Machine(
        read=read,
        reread=reader.reread,
        nvml=lambda: reader.nvml_status,
        release=reader.release,
        read_closed=reader.read_closed,
    )
