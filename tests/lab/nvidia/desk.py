"""A simulated machine without a kubelet, at which each plugin says what it offers."""

import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
from msgspec import Struct

from nodetopo.deviceplugin.devices import PluginDevice, read_minors
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.registration import CHANNEL_OPTIONS
from nodetopo.tools.capture.archive import unpack
from tests.fake_nvml.build import NAME, library
from tests.fake_nvml.fake import FakeNvml
from tests.lab.go_program import user_cache
from tests.lab.node_agent import NodeAgent
from tests.lab.nvidia.machines import Layout, mig_minors
from tests.lab.nvidia.plugin import CDI, NvidiaPlugin
from tests.lab.processes import Processes
from tests.lab.waiting import tail, wait_for

_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Device nodes; of the driver's, the machine has no ``nvidia-modeset``."""

_CHANNEL = Path("nvidia-caps-imex-channels", "channel0")
"""Of this one both plugins ask whether it is a character device, which takes rights to make."""

_LIBRARIES = ("libcuda.so", "libnvidia-ptxjitcompiler.so")
"""Of the driver's libraries, those that every container with a GPU needs; empty files here."""

_DRIVER_VERSION = "580.95.05"
"""As the machines' NVML libraries say; the names of the files end in it."""

_CALL_TIMEOUT_S = 60.0

_NO_ANSWER = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE})
"""Not a refusal of the plugin's."""

Offered = Mapping[str, Sequence[PluginDevice]]
"""Devices, ascending by id, by the resource."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a container is handed, without the order that a map or a request gave it.

    Attributes:
        nodes: (in the container, on the host, permissions), each once.
        mounts: (in the container, on the host), each once.
        annotations: the values; NVIDIA's keys end in a random number.
    """

    envs: Mapping[str, frozenset[str]]
    nodes: frozenset[tuple[str, str, str]]
    mounts: frozenset[tuple[str, str]]
    annotations: tuple[frozenset[str], ...]
    cdi: frozenset[str]


class Kubelet(FakeKubelet):
    """A stand-in that keeps which resources were ever registered."""

    def __init__(self, socket_dir: Path) -> None:
        self.registered: set[str] = set()
        self._socket_dir = socket_dir
        super().__init__(socket_dir)

    def Register(  # noqa: N802 - the service's own name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Take the plugin in."""
        self.registered.add(request.resource_name)
        return super().Register(request, context)

    def devices(self, resource: str) -> tuple[PluginDevice, ...] | None:
        """Return the list of *resource*, ascending by id; ``None`` before there is one."""
        view = self.view(resource)
        return None if view is None else tuple(sorted(view.devices, key=lambda one: one.id))

    def answer(self, resource: str, ids: Sequence[str]) -> Answer | None:
        """Return what a container with *ids* is handed; ``None`` where that is refused."""
        view = self.view(resource)
        assert view is not None, f"nobody serves {resource}"
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)]
        )
        where = f"unix:{self._socket_dir / view.endpoint}"
        with grpc.insecure_channel(where, options=CHANNEL_OPTIONS) as channel:
            try:
                stub: Any = service.DevicePluginStub(channel)
                answer = stub.Allocate(request, timeout=_CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                if error.code() in _NO_ANSWER:
                    raise
                return None
        (container,) = answer.container_responses
        return _unordered(container)


class Running(Protocol):
    """A plugin that may have ended."""

    def check_running(self) -> None:
        """Raise if it ended."""


class Desk:
    """The machine of *layout* below *home*, a short path.

    Attributes:
        host: root of its files.
        nvml: its NVML library, which both plugins load.
        nvidia: NVIDIA's plugin on it.
        ours: our daemon on it; it publishes nothing.
    """

    def __init__(self, home: Path, layout: Layout, *, python: Path | None = None) -> None:
        """Lay it out; *python* as :class:`NodeAgent` takes it."""
        self._home = home
        self._processes = Processes(home)
        self.host = host = _laid_out(home, layout)
        machine = home / "machine"
        machine.mkdir()
        (machine / "nvml.txt").write_text(layout.nvml, "utf-8")
        self.ours = NodeAgent(
            "desk",
            machine,
            home=home,
            host=host,
            kubeconfig=home / "none",
            processes=self._processes,
            python=python,
        )
        self.nvml = FakeNvml(home / "nvml", layout.nvml)
        self._socket_dir = self.ours.socket_dir
        self._socket_dir.mkdir(parents=True)
        self.nvidia = NvidiaPlugin(
            "desk",
            host=host,
            socket_dir=self._socket_dir,
            nvml=self.nvml.directory,
            processes=self._processes,
        )

    def close(self) -> None:
        """End every process; remove the files."""
        self._processes.stop_all()
        shutil.rmtree(self._home, ignore_errors=True)

    @contextmanager
    def with_nvidia(self, config: str, resources: Collection[str]) -> Iterator[Kubelet]:
        """Run NVIDIA's plugin until the end of the block; it starts once *resources* are there.

        After the block the kubelet knows every resource that it registered: it takes no
        signal before it has started all of its plugins (v0.19.0, main.go).
        """
        with Kubelet(self._socket_dir) as kubelet:
            self.nvidia.start(self.config(config))
            try:
                self._wait(kubelet, self.nvidia, resources)
                yield kubelet
            finally:
                self.nvidia.stop()

    @contextmanager
    def with_ours(self, config: str, resources: Collection[str]) -> Iterator[Kubelet]:
        """Run our daemon until the end of the block; it starts once *resources* are there."""
        with Kubelet(self._socket_dir) as kubelet:
            self.start_ours(config)
            try:
                self._wait(kubelet, self.ours, resources)
                yield kubelet
            finally:
                self.ours.stop()

    def start_ours(self, config: str) -> None:
        """Start our daemon with the file *config*; it remembers no fault of an earlier start."""
        path = self.config(config)
        (self._home / "health.json").unlink(missing_ok=True)
        self.ours.start(["--config-file", str(path), "--no-publish-labels"])

    def cdi_specs(self) -> Mapping[str, Any]:
        """Return the CDI specifications of the machine, by their kind."""
        files = (self.host / CDI).glob("*.json")
        specs = (json.loads(path.read_text("utf-8")) for path in files)
        return {spec["kind"]: spec for spec in specs}

    def config(self, text: str) -> Path:
        """Write the file that the plugins are given; return where.

        ``@HOST@`` in *text* stands for where NVIDIA's plugin sees the root of the driver.
        """
        path = self._home / "config.yaml"
        path.write_text(text.replace("@HOST@", str(self.host)), "utf-8")
        return path

    def ours_offers(self) -> set[str]:
        """Return the resources that our daemon last said to offer, registered or not."""
        lines = self.ours.log_since_start().splitlines()
        events = (json.loads(line) for line in lines if line.startswith("{"))
        said = [event["resources"] for event in events if event["event"] == "resources offered"]
        return set(said[-1]) if said else set()

    def evidence(self) -> str:
        """Return the ends of both logs."""
        return f"{tail(self.nvidia.log)}\n{self.ours.log_since_start()[-4000:]}"

    def _wait(self, kubelet: Kubelet, plugin: Running, resources: Collection[str]) -> None:
        def have_come() -> bool:
            plugin.check_running()
            return all(kubelet.view(name) is not None for name in resources)

        wait_for(f"{sorted(resources)} are registered", have_come, evidence=self.evidence)


def _laid_out(home: Path, layout: Layout) -> Path:
    """Unpack the machine's files; add what a driver that can do MIG has."""
    host = home / "host"
    unpack(layout.files.read_text("utf-8"), host)
    capabilities = host / "proc" / "driver" / "nvidia-caps"
    capabilities.mkdir(parents=True)
    (capabilities / "mig-minors").write_text(mig_minors(), "ascii")
    _add_devices(host, layout)
    _add_driver(host)
    return host


def _add_devices(host: Path, layout: Layout) -> None:
    """Add the device nodes, and those of a driver that runs in a container of its own."""
    gpus = layout.nvml.count("nvmlDeviceGetMinorNumber")
    names = (
        *_NODES,
        *(f"nvidia{minor}" for minor in range(gpus)),
        *_capability_nodes(host, layout),
    )
    for dev in (host / "dev", host / "run" / "nvidia" / "driver" / "dev"):
        (dev / _CHANNEL).parent.mkdir(parents=True, exist_ok=True)
        (dev / _CHANNEL).unlink(missing_ok=True)
        (dev / _CHANNEL).symlink_to("/dev/null")
        (dev / "nvidia-caps").mkdir()
        for name in names:
            (dev / name).touch()


def _capability_nodes(host: Path, layout: Layout) -> Iterator[str]:
    """Yield the names of the nodes that open the machine's MIG devices."""
    found = re.findall(r"nvmlDeviceGetGpuInstanceId (\d+):\d+ = 0 (\d+)", layout.nvml)
    instances = {(int(gpu), int(instance)) for gpu, instance in found}
    for (gpu, instance, compute), number in read_minors(host / "proc").items():
        if (gpu, instance) in instances and compute in (None, 0):
            yield f"nvidia-caps/nvidia-cap{number}"


def _add_driver(host: Path) -> None:
    """Lay out the driver's libraries, NVML among them; without those there is no CDI spec."""
    libraries = host / "usr" / "lib64"
    libraries.mkdir(parents=True)
    shutil.copy(library(user_cache()) / NAME, libraries / NAME)
    for name in _LIBRARIES:
        (libraries / f"{name}.{_DRIVER_VERSION}").touch()


def _unordered(container: Any) -> Answer:
    return Answer(
        envs={name: frozenset(value.split(",")) for name, value in container.envs.items()},
        nodes=frozenset(
            (node.container_path, node.host_path, node.permissions) for node in container.devices
        ),
        mounts=frozenset((mount.container_path, mount.host_path) for mount in container.mounts),
        annotations=tuple(frozenset(text.split(",")) for text in container.annotations.values()),
        cdi=frozenset(device.name for device in container.cdi_devices),
    )
