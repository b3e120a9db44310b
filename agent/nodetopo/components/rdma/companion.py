"""HCAs alongside GPUs: their pools, their pairs with GPUs, and the placement between them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import structlog

from nodetopo.components.rdma.composite import (
    PairAnswers,
    Pairs,
    SavedPairs,
    joined,
    paired,
    with_pairs,
)
from nodetopo.components.rdma.health.monitor import HcaHealthMonitor
from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.components.rdma.plan import RdmaPlan
from nodetopo.components.rdma.plugins import HcaPlugins, ServedPool
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.resources import Offer, Refusal, Resource
from nodetopo.deviceplugin.service import Answers, Prefer
from nodetopo.deviceplugin.state_file import StateFile
from nodetopo.kernel.offers import Choice
from nodetopo.kernel.places import Places
from nodetopo.kernel.requester import Requesters
from nodetopo.model.notice import Notice
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.pairing import Pairing


class HcaCompanion:
    """Offers HCAs; the keeper of the GPUs' plugins calls it, from one thread at a time.

    Args:
        health: ``None`` where HCAs are not watched; a lost one is Unhealthy all the same.
        requesters: find the container of a call; ``None`` where nothing follows.
        file: keeps pairs across restarts; ``None`` keeps them in memory.
    """

    def __init__(
        self,
        plan: RdmaPlan,
        places: Places,
        health: HcaHealthMonitor | None = None,
        *,
        requesters: Requesters | None = None,
        file: StateFile[SavedPairs] | None = None,
    ) -> None:
        requesters = requesters or Requesters()
        # Coordinates the GPU and HCA choices for one container.
        self.joint = JointPlacement(requesters)
        self._plan = plan
        self._health = health
        known = () if health is None else health.known
        self._hcas = HcaPlugins(places, self.joint, requesters, known)
        self._file = file
        saved = None if file is None else file.load().content
        self._ever_paired: Mapping[str, str] = {} if saved is None else saved.hcas
        self._pairs = Pairs(hcas=MappingProxyType({}))
        self._pairing = Pairing(snapshot=Snapshot())
        self._log_warnings()

    def use(self, plan: RdmaPlan, places: Places) -> None:
        """Offer by *plan* from the next snapshot on."""
        self._plan = plan
        self._hcas.move(places)
        self._log_warnings()

    @property
    def pools(self) -> tuple[ServedPool, ...]:
        """The pools that are served now, in the order of their file."""
        return self._hcas.served

    @property
    def refusals(self) -> Sequence[Refusal]:
        return self._hcas.refusals

    @property
    def cdi_problem(self) -> str | None:
        return self._hcas.cdi_problem

    def notices(self) -> tuple[Notice, ...]:
        """Return the notice about the file of pairs since the last call, and forget it."""
        return () if self._file is None else self._file.notices()

    def plugins(self) -> Iterator[tuple[str, DevicePlugin]]:
        yield from ((pool.resource.name, pool.plugin) for pool in self._hcas.served)

    def devices(self) -> Iterator[tuple[str, Sequence[PluginDevice]]]:
        yield from ((pool.resource.name, pool.resource.devices) for pool in self._hcas.served)

    def look(self, snapshot: Snapshot, *, is_new: bool) -> object:
        """Watch the HCAs of *snapshot* while any are offered; return the verdicts on them."""
        health = self._health
        if health is None:
            return None
        if self._plan.config is None and self._plan.pair is None:
            health.rest()
        elif is_new or not health.known:
            health.take(snapshot)
        return health.view

    def join(self, snapshot: Snapshot, offered: Offer) -> Offer:
        """Remember the HCAs of *snapshot*; return *offered* with pairs, if enabled."""
        self._pairing = Pairing(
            snapshot=self._hcas.remember(
                snapshot, () if self._health is None else self._health.known
            )
        )
        resource = self._plan.pair
        if resource is None:
            self._pairs = Pairs(hcas=MappingProxyType({}))
            return offered
        gpus = [
            device.id for whole in offered.resources if whole.is_whole for device in whole.devices
        ]
        late = None if self._file is None else self._file.late()
        if late is not None:
            self._ever_paired = joined(late.hcas, self._ever_paired)
        self._pairs = paired(self._pairing, self._hcas.known, gpus, self._ever_paired, resource)
        self._ever_paired = {**self._ever_paired, **self._pairs.hcas}
        if self._file is not None:  # before a pod can have one
            self._file.save(SavedPairs(hcas=self._ever_paired))
        present = {hca.key for hca in self._hcas.known if not hca.is_lost} - self._unhealthy()
        return with_pairs(offered, resource, self._pairs, present.__contains__)

    def identity(self, resource: str) -> object:
        """Return the way HCAs reach containers, if *resource* is the resource of the pairs."""
        return self._plan.answers if resource == self._plan.pair else None

    def follow(
        self,
        resource: str,
        gpus: Callable[[], Mapping[str, str]],
        prefer: Choice,
        answers: Answers,
    ) -> tuple[Prefer, Answers]:
        """Let GPUs follow the HCAs of their container, or bring their own."""
        if resource == self._plan.pair:
            hcas = partial(self._hcas.response, self._plan)
            return prefer, PairAnswers(answers, hcas, lambda: self._pairs.hcas, self.joint)
        return self.joint.following(resource, gpus, prefer), answers

    def serve(self, resources: Sequence[tuple[Resource, Choice]]) -> None:
        """Offer the pools, whose HCAs follow the GPUs of the first resource of whole GPUs."""
        for resource, prefer in resources:
            if resource.is_whole and resource.name != self._plan.pair:
                free = tuple(device.id for device in resource.devices if device.is_healthy)
                self.joint.expect(free, prefer)
                break
        else:
            self.joint.expect((), None)
        taken = frozenset(self._pairs.hcas.values())
        self._hcas.take(self._plan, self._pairing, self._unhealthy(), taken)

    def _unhealthy(self) -> set[str]:
        """Return the keys of HCAs that are not to be handed out by their health."""
        view = {} if self._health is None else self._health.view
        return {key for key, health in view.items() if not health.is_healthy}

    def _log_warnings(self) -> None:
        config = self._plan.config
        for text in () if config is None else config.warnings:
            structlog.get_logger().warning("setting", about=text)
