"""Pools of HCAs on the kubelet: a plugin for each, and what they and the GPUs' plugins share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

import structlog

from agent.components.rdma.settings import HcaSettings
from agent.deviceplugin import sockets
from agent.deviceplugin.allocation_log import Asked
from agent.deviceplugin.cdi_spec import nodes_spec
from agent.deviceplugin.cdi_writer import CdiFile
from agent.deviceplugin.host_files import seen
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.plugin import DevicePlugin
from agent.deviceplugin.registration import Registration
from agent.deviceplugin.resources import Refusal
from agent.deviceplugin.settings import NumaReport
from agent.errors import InputError
from agent.model.snapshot import Snapshot
from agent.nccl.job import JobVariable
from agent.rdma.identity import KnownHca, remembered_hcas
from agent.rdma.pairing import Pairing
from agent.rdma.pools import RdmaConfig, SharingMode
from agent.rdmaplugin.answers import (
    CM_DEVICE,
    CONNECTION_MANAGER,
    DIRECTORY,
    RdmaAnswers,
    RdmaHandOver,
    RdmaSettings,
    cdi_name,
    device_nodes,
    hca_response,
    present_hcas,
)
from agent.rdmaplugin.joint import JointPlacement
from agent.rdmaplugin.resources import RdmaOffer, RdmaResource, key_of, offer_hcas
from agent.topology.matrix import word


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPlan:
    """What settings and the file they name say about HCAs.

    Attributes:
        config: ``None`` where no HCAs are offered.
        host_root: where this process sees the host's files.
        variables: which ones containers get.
        cdi_dir: where our CDI specification is written, on the host; ``None`` for a simulated
            machine.
    """

    config: RdmaConfig | None
    answers: RdmaSettings
    variables: tuple[JobVariable, ...]
    host_root: Path
    cdi_dir: Path | None

    @classmethod
    def of(cls, settings: HcaSettings, config: RdmaConfig | None, *, is_simulated: bool) -> Self:
        """Return the plan; for a simulated machine no host file is used."""
        return cls(
            config=config,
            answers=RdmaSettings(
                hand_over=RdmaHandOver(settings.rdma_hand_over),
                kind=settings.rdma_cdi_kind,
                numa=NumaReport(settings.numa_mode),
                sysfs_root=None if is_simulated else settings.sysfs_root,
            ),
            variables=settings.job_variables,
            host_root=settings.host_root,
            cdi_dir=None if is_simulated else settings.cdi_spec_dir,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPool:
    """A pool on the kubelet."""

    resource: RdmaResource
    plugin: DevicePlugin
    answers: RdmaAnswers
    settings: RdmaSettings


class HcaPlugins:
    """Keeps a plugin for each pool. One thread changes it, any may read it."""

    def __init__(self, socket_dir: Path, joint: JointPlacement) -> None:
        """Serve nothing yet; *joint* is shared with the plugins of GPUs."""
        self._socket_dir = socket_dir
        self._joint = joint
        self._known: tuple[KnownHca, ...] = ()
        self._offer = RdmaOffer()
        self._pairing: Pairing | None = None
        self._cdi_problem: str | None = None
        self._has_connection_manager = False
        self._served: Mapping[str, ServedPool] = MappingProxyType({})  # replaced, not changed

    @property
    def served(self) -> tuple[ServedPool, ...]:
        """The pools, in the order of the file."""
        return tuple(self._served.values())

    @property
    def known(self) -> tuple[KnownHca, ...]:
        """Every HCA seen since the start, lost ones included."""
        return self._known

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Which pools are not offered, and which HCAs are in none, with the reasons."""
        return self._offer.refusals

    @property
    def cdi_problem(self) -> str | None:
        """Why the CDI specification of HCAs is not what it should be."""
        return self._cdi_problem

    def response(self, plan: RdmaPlan, keys: Sequence[str]) -> pb.ContainerAllocateResponse:
        """Return what a container needs to see the HCAs of *keys*, which come with their GPUs.

        Raises:
            UnreadableError: one of them has no device nodes any more.
        """
        return hca_response(
            present_hcas({one.key: one.hca for one in self._known}, keys),
            plan.answers,
            with_issm=False,
            has_connection_manager=self._has_connection_manager,
        )

    def remember(self, snapshot: Snapshot) -> Snapshot:
        """Take the HCAs of *snapshot*; return it with those that are lost, in a fixed order."""
        self._known = remembered_hcas(self._known, snapshot)
        return replace(snapshot, hcas=tuple(one.hca for one in self._known))

    def take(
        self,
        plan: RdmaPlan,
        pairing: Pairing,
        unhealthy: Collection[str],
        registration: tuple[Registration, Path],
        taken: Collection[str] = (),
    ) -> None:
        """Offer the HCAs of a snapshot that :meth:`remember` returned.

        Args:
            plan: what is offered, and how.
            pairing: of that snapshot, with lost GPUs too, so that their HCAs stay theirs.
            unhealthy: keys of HCAs.
            registration: how the kubelet learns of a resource, and its plugins_registry.
            taken: keys of HCAs that are offered together with a GPU, and so in no pool.
        """
        snapshot = pairing.snapshot
        if plan.config is None and not taken:
            self._pairing = None
            self._joint.rest()
        else:
            self._pairing = pairing
            self._joint.take(
                pairing,
                {gpu.id: position for position, gpu in enumerate(snapshot.gpus)},
                {one.key: position for position, one in enumerate(self._known)},
                plan.variables,
            )
            self._has_connection_manager = plan.answers.has_connection_manager
        offered = RdmaOffer()
        if plan.config is not None:
            offered = offer_hcas(snapshot, self._known, plan.config.pools, unhealthy, taken)
            self._log_changes(offered)
        offered = self._with_specification(plan, offered, taken)
        modes = {resource.name: resource.pool.mode for resource in offered.resources}
        kept = {}
        for name, served in self._served.items():
            if name not in modes:
                served.plugin.retire()
            elif (served.settings, served.resource.pool.mode) != (plan.answers, modes[name]):
                served.plugin.stop()
            else:
                kept[name] = served
        now = {}
        for resource in offered.resources:
            try:
                sockets.check_path_lengths(resource.name, [self._socket_dir])
            except InputError as error:  # the others may have shorter names
                structlog.get_logger().error(
                    "resource not served", resource=resource.name, problem=str(error)
                )
                continue
            now[resource.name] = self._serve(plan, resource, kept.get(resource.name), registration)
        self._served = MappingProxyType(now)
        self._offer = offered

    def _serve(
        self,
        plan: RdmaPlan,
        resource: RdmaResource,
        before: ServedPool | None,
        registration: tuple[Registration, Path],
    ) -> ServedPool:
        if before is not None:
            before.answers.resource = resource
            before.plugin.update(resource.devices)
            return replace(before, resource=resource)
        answers = RdmaAnswers(resource, plan.answers, self._joint)

        def prefer(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
            return self._joint.hcas_for(answers.resource, available, required, size)

        def explain(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
            del asked
            return self._account(answers.resource, ids)

        plugin = DevicePlugin(
            resource.name,
            self._socket_dir,
            prefer,
            answers,
            structlog.get_logger(),
            explain=explain,
            registration=registration[0],
            plugins_registry=registration[1],
        )
        plugin.update(resource.devices)
        plugin.start()
        return ServedPool(resource=resource, plugin=plugin, answers=answers, settings=plan.answers)

    def _account(self, resource: RdmaResource, ids: Sequence[str]) -> Mapping[str, object]:
        """Return the keys of the log line for an allocation of *ids*."""
        pairing, keys = self._pairing, dict.fromkeys(map(key_of, ids))
        hcas = [resource.hcas[key].name for key in keys if key in resource.hcas]
        line: dict[str, object] = {"hcas": hcas, "mode": resource.pool.mode.value}
        if resource.pool.mode is SharingMode.SHARED:
            return {**line, "said": "a container gets every HCA of a shared pool"}
        positions = {one.key: at for at, one in enumerate(self._known)}
        gpus = self._joint.partner_positions(ids)
        if pairing is None or not gpus:
            return {**line, "said": f"{', '.join(hcas)}: no GPU was given to the container before"}
        pairs = pairing.matched(gpus, [positions[key] for key in keys if key in positions])
        said = ", ".join(
            f"{pairing.snapshot.gpus[pair.gpu].name} "
            f"{(pairing.snapshot.hcas or ())[pair.hca].name}"
            f" {'?' if pair.closeness is None else word(pair.closeness)}"
            for pair in pairs
        )
        return {**line, "said": f"follows the GPUs of the container: {said}"}

    def _with_specification(
        self, plan: RdmaPlan, offered: RdmaOffer, taken: Collection[str]
    ) -> RdmaOffer:
        """Write the CDI specification that answers name, if they do, with HCAs *taken* too.

        Return *offered* with the devices Unhealthy that it does not define.
        """
        self._cdi_problem = None
        if plan.cdi_dir is None or plan.answers.hand_over is not RdmaHandOver.CDI_CRI:
            return offered
        nodes: dict[str, Sequence[str]] = {
            cdi_name(key): device_nodes(hca, with_issm=resource.pool.with_issm)
            for resource in offered.resources
            for key, hca in resource.hcas.items()
        }
        for one in self._known:
            if one.key in taken:
                nodes[cdi_name(one.key)] = device_nodes(one.hca, with_issm=False)
        if nodes and self._has_connection_manager:
            nodes[CM_DEVICE] = (f"{DIRECTORY}/{CONNECTION_MANAGER}",)
        file = CdiFile(seen(plan.host_root, plan.cdi_dir), plan.answers.kind)
        spec = nodes_spec(plan.answers.kind, nodes, Path("/"))
        problem = file.remove() if spec is None else file.write(spec)
        if problem is not None:
            self._cdi_problem = f"CDI specification of {plan.answers.kind}: {problem}"
        defined = file.devices()
        return replace(
            offered,
            resources=tuple(
                replace(
                    resource,
                    devices=tuple(
                        device
                        if cdi_name(key_of(device.id)) in defined
                        else replace(device, is_healthy=False)
                        for device in resource.devices
                    ),
                )
                for resource in offered.resources
            ),
        )

    def _log_changes(self, offered: RdmaOffer) -> None:
        """Log what is new in what is offered, and in what is not."""
        log = structlog.get_logger()
        for refusal in offered.refusals:
            if refusal not in self._offer.refusals:
                log.info("HCAs not offered", reason=refusal.reason)
        names = [resource.name for resource in offered.resources]
        if names != [resource.name for resource in self._offer.resources]:
            log.info("resources offered", resources=names)
