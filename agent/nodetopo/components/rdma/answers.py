"""The answer to Allocate for HCAs: the character devices through which programs use them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import structlog
from msgspec import Struct

from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.components.rdma.resources import RdmaResource, key_of
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.host_files import exists
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import UnreadableError
from nodetopo.model.cdi import device_name
from nodetopo.model.hca import Hca
from nodetopo.rdma.pools import SharingMode

DIRECTORY = "infiniband"
"""Below ``/dev``, where programs look for the devices (rdma-core, libibverbs/init.c)."""

CONNECTION_MANAGER = "rdma_cm"
"""The device of librdmacm: one for the whole host, of the kernel module rdma_ucm."""

SUBNET_MANAGER = "issm"
"""Prefix of the device that makes a port the subnet manager's (kernel user_mad documentation).
Jobs do without it; the shared plugin gives it (v1.5.3: rdmamap v1.1.0, GetRdmaCharDevices)."""

ACCESS = "rwm"
"""What a container can do with each node, as from the shared plugin (pkg/resources)."""

CM_DEVICE = "rdma-cm"
"""The name of the connection manager in our CDI specification."""


class RdmaHandOver(StrEnum):
    """How an HCA is made visible in a container.

    ``device-specs``: its device nodes are in the answer, which every runtime understands.
    ``cdi-cri``: its name is, which the runtime looks up in our CDI specification.
    """

    DEVICE_SPECS = "device-specs"
    CDI_CRI = "cdi-cri"


class RdmaSettings(Struct, frozen=True, kw_only=True):
    """How HCAs are handed to containers."""

    hand_over: RdmaHandOver = RdmaHandOver.DEVICE_SPECS
    kind: str = "device-plugin.nodetopo.io/hca"  # of the CDI specification
    numa: NumaReport = NumaReport.NUMA  # that the kubelet is given
    # Where the kernel lists the devices that exist; None for a simulated machine, which has all of
    # them.
    sysfs_root: Path | None = Path("/sys")

    @property
    def has_connection_manager(self) -> bool:
        """Whether the host has the device of librdmacm; reads sysfs."""
        if self.sysfs_root is None:
            return True
        return exists(self.sysfs_root / "class" / "misc" / CONNECTION_MANAGER)


class RdmaAnswers:
    """Hands HCAs of one pool to containers; the resource is replaced with every snapshot."""

    def __init__(
        self, resource: RdmaResource, settings: RdmaSettings, joint: JointPlacement
    ) -> None:
        self.resource = resource
        self._joint = joint
        self._settings = settings
        self._has_connection_manager = False

    @property
    def numa(self) -> NumaReport:
        return self._settings.numa

    def look(self) -> None:
        """Look for the connection manager again: its module can be loaded at any time."""
        self._has_connection_manager = self._settings.has_connection_manager

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        """Return the container response for the HCAs of *devices*.

        In a shared pool these are all healthy HCAs of the pool.
        """
        given = given_hcas(self.resource, devices)
        response = hca_response(
            given,
            self._settings,
            with_issm=self.resource.pool.with_issm,
            has_connection_manager=self._has_connection_manager,
        )
        gpus = self._joint.gpus(self.resource.name)
        add_variables(response, self._joint, gpus, tuple(given), are_gpus_certain=False)
        return response


def add_variables(
    response: pb.ContainerAllocateResponse,
    joint: JointPlacement,
    gpus: Sequence[str],
    hcas: Sequence[str],
    *,
    are_gpus_certain: bool,
) -> None:
    """Add the variables of a container with *gpus* and *hcas*; the pod's variables override them.

    Only answers about HCAs have them: if two answers set a variable, the kubelet keeps the first.
    *gpus* are certain if the same answer hands them over.

    The kubelet puts a pod's variables after the plugins' variables (1.36 pkg/kubelet/
    kubelet_pods.go, GenerateRunContainerOptions), and of two the last counts.
    """
    try:
        response.envs.update(joint.variables(gpus, hcas, are_gpus_certain=are_gpus_certain))
    except Exception:  # noqa: BLE001 - a fault in a hint must not reject the pod
        structlog.get_logger().error("job variables not given", hcas=list(hcas), exc_info=True)


def hca_response(
    given: Mapping[str, Hca],
    settings: RdmaSettings,
    *,
    with_issm: bool,
    has_connection_manager: bool,
) -> pb.ContainerAllocateResponse:
    """Return the container response for the HCAs of *given*, by key, in their order."""
    response = pb.ContainerAllocateResponse()
    if settings.hand_over is RdmaHandOver.CDI_CRI:
        names = [cdi_name(key) for key in given]
        if has_connection_manager:
            names.append(CM_DEVICE)
        response.cdi_devices.extend(
            pb.CDIDevice(name=device_name(settings.kind, name)) for name in names
        )
        return response
    nodes = [node for hca in given.values() for node in device_nodes(hca, with_issm=with_issm)]
    if has_connection_manager:
        nodes.append(f"{DIRECTORY}/{CONNECTION_MANAGER}")
    for node in dict.fromkeys(nodes):
        path = f"/dev/{node}"
        response.devices.add(container_path=path, host_path=path, permissions=ACCESS)
    return response


def given_hcas(resource: RdmaResource, devices: Sequence[PluginDevice]) -> dict[str, Hca]:
    """Return the HCAs that a container with *devices* gets, by key, in the resource's order.

    Raises:
        UnreadableError: one is not in *resource*, or has no device nodes any more.
    """
    wanted = {key_of(device.id) for device in devices}
    if resource.pool.mode is SharingMode.SHARED:
        # Where all have just failed, what the kubelet chose: it has not heard of it yet.
        wanted = set(resource.hcas).difference(resource.unhealthy) or wanted
    present_hcas(resource.hcas, sorted(wanted))
    return {key: hca for key, hca in resource.hcas.items() if key in wanted}


def present_hcas(hcas: Mapping[str, Hca], keys: Sequence[str]) -> dict[str, Hca]:
    """Return the HCAs named by *keys*, in their order."""
    for key in keys:
        if key not in hcas or not hcas[key].char_devices:
            name = hcas[key].name if key in hcas else key
            raise UnreadableError(
                f"{name} has no devices in /dev/{DIRECTORY} any more",
                "see `nodetopo health` for what became of the HCA",
            )
    return {key: hcas[key] for key in keys}


def device_nodes(hca: Hca, *, with_issm: bool) -> tuple[str, ...]:
    """Return the device nodes of *hca* below ``/dev``."""
    return tuple(
        f"{DIRECTORY}/{name}"
        for name in hca.char_devices
        if with_issm or not name.startswith(SUBNET_MANAGER)
    )


def cdi_name(key: str) -> str:
    """Return the name of the HCA *key* in our CDI specification, where names have no slash."""
    return key.replace("/", "-")
