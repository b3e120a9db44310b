"""Pools of HCAs on the kubelet, and the state that they share with the plugins of GPUs."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.rdma.answers import (
    CM_DEVICE,
    CONNECTION_MANAGER,
    DIRECTORY,
    RdmaAnswers,
    RdmaHandOver,
    cdi_name,
    device_nodes,
    hca_response,
    present_hcas,
)
from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.components.rdma.plan import RdmaPlan
from nodetopo.components.rdma.resources import RdmaOffer, RdmaResource, key_of, offer_hcas
from nodetopo.deviceplugin.allocation_log import Asked
from nodetopo.deviceplugin.cdi_spec import nodes_spec
from nodetopo.deviceplugin.cdi_writer import CdiFile
from nodetopo.deviceplugin.host_files import seen
from nodetopo.deviceplugin.keeper import PluginKeeper, Servable
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.resources import Refusal
from nodetopo.deviceplugin.service import Answers, Prefer
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.kernel.places import Places
from nodetopo.kernel.requester import Requesters
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import KnownHca, remembered_hcas
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.pools import Pool, SharingMode
from nodetopo.rdma.rails import nearest_cards
from nodetopo.topology.matrix import word


class ServedPool(Struct, frozen=True, kw_only=True):
    """A pool on the kubelet."""

    resource: RdmaResource
    plugin: DevicePlugin
    answers: RdmaAnswers


class HcaPlugins:
    """Keeps a plugin for each pool. One thread changes it; any thread can read it."""

    def __init__(
        self,
        places: Places,
        joint: JointPlacement,
        requesters: Requesters,
        known: tuple[KnownHca, ...] = (),
    ) -> None:
        """Serve nothing yet; *joint* and *requesters* are shared with the plugins of GPUs.

        *known* are the HCAs that an earlier process has seen in this boot.
        """
        self._places = places
        self._joint = joint
        self._requesters = requesters
        self._known = known
        self._offer = RdmaOffer()
        self._members: Mapping[Pool, frozenset[str]] = {}  # pools as the file has them
        self._pairing: Pairing | None = None
        self._cdi_problem: str | None = None
        self._has_connection_manager = False
        self._keeper = PluginKeeper[ServedPool]()

    def move(self, places: Places) -> None:
        """Register by *places* from the next plugin on."""
        self._places = places

    @property
    def served(self) -> tuple[ServedPool, ...]:
        """The pools, in the order of the file."""
        return tuple(self._keeper.served.values())

    @property
    def known(self) -> tuple[KnownHca, ...]:
        """Every HCA that was ever seen, lost ones included."""
        return self._known

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Pools that are not offered and HCAs that are in no pool, with the reasons."""
        return self._offer.refusals

    @property
    def cdi_problem(self) -> str | None:
        """Why the CDI specification of HCAs is wrong or missing; ``None`` if it is right."""
        return self._cdi_problem

    def response(self, plan: RdmaPlan, keys: Sequence[str]) -> pb.ContainerAllocateResponse:
        """Return the container response for the HCAs *keys*, which come with their GPUs."""
        return hca_response(
            present_hcas({hca.key: hca.hca for hca in self._known}, keys),
            plan.answers,
            with_issm=False,
            has_connection_manager=self._has_connection_manager,
        )

    def remember(self, snapshot: Snapshot, known: Sequence[KnownHca] = ()) -> Snapshot:
        """Remember the HCAs of *snapshot*; return it with lost HCAs, in a fixed order.

        *known* are HCAs of an earlier process, whose file might have been read late.
        """
        keys = {hca.key for hca in self._known}
        late = tuple(hca for hca in known if hca.key not in keys)
        self._known = remembered_hcas((*self._known, *late), snapshot)
        return replace(snapshot, hcas=tuple(hca.hca for hca in self._known))

    def take(
        self,
        plan: RdmaPlan,
        pairing: Pairing,
        unhealthy: Collection[str],
        taken: Collection[str] = (),
    ) -> None:
        """Offer the HCAs of a snapshot that :meth:`remember` returned.

        Args:
            pairing: of that snapshot, which has lost GPUs, so that they keep their HCAs.
            unhealthy: keys of HCAs.
            taken: keys of HCAs that are paired with a GPU, and therefore in no pool.
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
            numa = plan.answers.numa
            offered = self._offered(plan.config.pools, snapshot, unhealthy, taken, numa)
            self._log_changes(offered)
        offered = self._with_specification(plan, offered, taken)
        wanted = {
            resource.name: Servable(
                devices=resource.devices,
                identity=(plan.answers, resource.pool.mode),
                serve=partial(self._serve, plan, resource),
            )
            for resource in offered.resources
        }
        self._joint.offer(offered.resources)
        self._keeper.keep(wanted, self._places.directories)
        self._offer = offered

    def _offered(
        self,
        pools: Sequence[Pool],
        snapshot: Snapshot,
        unhealthy: Collection[str],
        taken: Collection[str],
        numa: NumaReport,
    ) -> RdmaOffer:
        """Return the devices of *pools*, and remember which HCAs they have.

        Before the places of GPUs are known, and with them the rails, a pool can have cards for
        storage: those are not kept.
        """
        before = {pool.resource: self._members.get(pool, frozenset()) for pool in pools}
        offered = offer_hcas(
            snapshot,
            self._known,
            pools,
            unhealthy,
            taken,
            members=before,
            numa=numa,
            last=self._offer.resources,
        )
        if nearest_cards(snapshot):
            now = {one.name: before[one.name].union(one.hcas) for one in offered.resources}
            self._members = {pool: now.get(pool.resource, before[pool.resource]) for pool in pools}
        return offered

    def _serve(
        self, plan: RdmaPlan, resource: RdmaResource, before: ServedPool | None
    ) -> ServedPool:
        """Return *resource* as served, keeping the plugin that served it *before* if any."""
        if before is not None:
            before.answers.resource = resource
            return replace(before, resource=resource)
        answers = RdmaAnswers(resource, plan.answers, self._joint)

        def prefer(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
            return self._joint.hcas_for(answers.resource, available, required, size)

        def explain(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
            del asked
            return self._account(answers.resource, ids)

        around: tuple[Prefer, Answers] = prefer, answers
        if resource.pool.mode is not SharingMode.SHARED:
            around = self._requesters.around(resource.name, *around)
        plugin = DevicePlugin(
            resource.name,
            self._places.socket_dir,
            *around,
            structlog.get_logger(),
            explain=explain,
            registration=self._places.registration,
            plugins_registry=self._places.registry,
        )
        return ServedPool(resource=resource, plugin=plugin, answers=answers)

    def _account(self, resource: RdmaResource, ids: Sequence[str]) -> Mapping[str, object]:
        """Return the keys of the log line for an allocation of *ids*."""
        pairing, keys = self._pairing, dict.fromkeys(map(key_of, ids))
        if resource.pool.mode is SharingMode.SHARED:
            keys = dict.fromkeys(key for key in resource.hcas if key not in resource.unhealthy)
        hcas = [resource.hcas[key].name for key in keys if key in resource.hcas]
        line: dict[str, object] = {"hcas": hcas, "mode": resource.pool.mode.value}
        if resource.pool.mode is SharingMode.SHARED:
            return {**line, "said": "a container gets every healthy HCA of a shared pool"}
        positions = {one.key: at for at, one in enumerate(self._known)}
        gpus = self._joint.followed(ids)
        if pairing is None or not gpus:
            return {**line, "said": f"{', '.join(hcas)}: no GPU was given to the container before"}
        pairs = pairing.matched(gpus, [positions[key] for key in keys if key in positions])
        names = ", ".join(
            f"{pairing.snapshot.gpus[pair.gpu].name} "
            f"{(pairing.snapshot.hcas or ())[pair.hca].name}"
            f" {'?' if pair.closeness is None else word(pair.closeness)}"
            for pair in pairs
        )
        return {**line, "said": f"follows the GPUs of the container: {names}"}

    def _with_specification(
        self, plan: RdmaPlan, offered: RdmaOffer, taken: Collection[str]
    ) -> RdmaOffer:
        """Write the CDI specification if answers name its devices; it has HCAs *taken*, too.

        Return *offered* with every HCA unhealthy that the specification does not define.
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
                resource.with_unhealthy(
                    key for key in resource.hcas if cdi_name(key) not in defined
                )
                for resource in offered.resources
            ),
        )

    def _log_changes(self, offered: RdmaOffer) -> None:
        """Log new refusals, and the resources if they have changed."""
        log = structlog.get_logger()
        for refusal in offered.refusals:
            if refusal not in self._offer.refusals:
                tell = log.info if refusal.resource is None else log.error
                tell("HCAs not offered", reason=refusal.reason)
        told = {resource.exception for resource in self._offer.resources}
        for resource in offered.resources:
            if resource.exception not in (None, *told):
                log.warning(
                    "HCAs advertised that are excluded by default",
                    resource=resource.name,
                    reason=resource.exception,
                )
        names = [resource.name for resource in offered.resources]
        if names != [resource.name for resource in self._offer.resources]:
            log.info("resources offered", resources=names)
