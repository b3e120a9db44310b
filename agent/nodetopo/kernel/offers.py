"""The interfaces that components offer each other through the kernel."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from nodetopo.allocation.rules import Rules as PlacementRules
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.plugin import Absence, DevicePlugin
from nodetopo.deviceplugin.resources import Offer, Refusal, Resource
from nodetopo.deviceplugin.service import Answers, Prefer
from nodetopo.model.dra import PublishedDevice
from nodetopo.model.gpu import Gpu
from nodetopo.model.gpu_health import HealthView
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.neighbours import ServedByDra


class Choice(Protocol):
    """Chooses among the devices of a GPU resource."""

    def __call__(
        self,
        available: Sequence[str],
        required: Sequence[str],
        size: int,
        /,
        *,
        taken_hcas: frozenset[str] | None = None,
    ) -> Sequence[str]:
        """Return the ids to take.

        *taken_hcas*: the container may get HCAs too, but for these names; ``None``: it gets none.
        """


class OfferedGpus(Protocol):
    """The GPU component's interface for other components."""

    has_claims: bool
    """Set while GPUs are given out by claim although the driver is off: their CDI names are needed.
    """

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has every offered resource; False until the offer is known."""

    @property
    def is_decided(self) -> bool:
        """Whether each resource is registered or known not to be."""

    @property
    def taken(self) -> Snapshot | None:
        """The snapshot that is offered; ``None`` before the first."""

    @property
    def published(self) -> Snapshot | None:
        """The snapshot with lost GPUs; a new object only when it carries news."""

    @property
    def has_read(self) -> bool:
        """Whether NVML was read since the start; until then GPUs are those of a file."""

    @property
    def absences(self) -> Mapping[str, tuple[Absence, ...]]:
        """When no kubelet had the devices of a resource from us, by resource."""

    @property
    def running(self) -> Mapping[str, DevicePlugin]:
        """Every device plugin by its resource."""

    def offerable(self, snapshot: Snapshot, /) -> tuple[Gpu, ...]:
        """Return the GPUs of *snapshot* that the settings do not exclude."""

    def placement_rules(self, snapshot: Snapshot, /) -> PlacementRules:
        """Return the rules for choosing whole GPUs of *snapshot*."""

    def cdi_names(self, uuids: Collection[str], /) -> tuple[str, ...]:
        """Return the CDI names of GPUs and MIG devices; raises UnreadableError."""


class Verdicts(Protocol):
    """The health of the GPUs."""

    @property
    def view(self) -> HealthView:
        """The verdicts, by GPU; replaced as a whole, never changed."""


class Companion(Protocol):
    """Offers other devices alongside GPUs, or together with them.

    Whoever keeps the plugins of GPUs calls it, from one thread at a time.
    """

    @property
    def refusals(self) -> Sequence[Refusal]:
        """Which of its devices are not offered, with the reasons."""

    @property
    def cdi_problem(self) -> str | None:
        """Why the companion's CDI specification is wrong or missing; ``None`` if it is right."""

    def plugins(self) -> Iterable[tuple[str, DevicePlugin]]:
        """Yield its plugins by resource."""

    def devices(self) -> Iterable[tuple[str, Sequence[PluginDevice]]]:
        """Yield the devices that it offers, by resource."""

    def look(self, snapshot: Snapshot, /, *, is_new: bool) -> object:
        """Watch the devices of *snapshot*; return another object when a verdict has changed.

        *is_new* is set until :meth:`join` was called with the same snapshot.
        """

    def join(self, snapshot: Snapshot, offered: Offer, /) -> Offer:
        """Return *offered*, adjusted for the companion's devices on *snapshot* with lost GPUs."""

    def identity(self, resource: str, /) -> object:
        """Return the companion's properties whose change requires a new plugin of *resource*."""

    def follow(
        self,
        resource: str,
        gpus: Callable[[], Mapping[str, str]],
        prefer: Choice,
        answers: Answers,
        /,
    ) -> tuple[Prefer, Answers]:
        """Return how devices of *resource*, with *gpus* by device, are chosen and answered."""

    def serve(self, resources: Sequence[tuple[Resource, Choice]], /) -> None:
        """Offer the companion's devices, once the GPUs of *resources* are offered."""


class NoCompanion:
    """Stands in where no companion exists."""

    refusals: Sequence[Refusal] = ()
    cdi_problem: str | None = None

    def plugins(self) -> Iterable[tuple[str, DevicePlugin]]:
        """Yield none."""
        return ()

    def devices(self) -> Iterable[tuple[str, Sequence[PluginDevice]]]:
        """Yield none."""
        return ()

    def look(self, _snapshot: Snapshot, *, is_new: bool) -> object:
        """Do nothing."""
        del is_new
        return None

    def join(self, _snapshot: Snapshot, offered: Offer) -> Offer:
        """Return *offered*."""
        return offered

    def identity(self, _resource: str) -> object:
        """Return ``None``: no plugin depends on a companion."""

    def follow(
        self,
        _resource: str,
        _gpus: Callable[[], Mapping[str, str]],
        prefer: Choice,
        answers: Answers,
    ) -> tuple[Prefer, Answers]:
        """Return *prefer* and *answers*."""
        return prefer, answers

    def serve(self, _resources: Sequence[tuple[Resource, Choice]]) -> None:
        """Do nothing."""


class Claims(Protocol):
    """The devices that DRA drivers give out on the node."""

    @property
    def devices(self) -> tuple[PublishedDevice, ...] | None:
        """The devices that all drivers publish for the node; ``None`` before they are known."""

    def look(self, snapshot: Snapshot, /) -> ServedByDra:
        """Return the devices given out by DRA drivers on *snapshot*, lost GPUs included."""


class Scans(Protocol):
    """The loop that reads the node."""

    is_blind: bool
    """Whether NVML gave no reading in the last scan."""

    def scan_soon(self) -> None:
        """Scan before the interval is over."""

    def scan_whole(self) -> None:
        """Scan soon, and reread the facts that are normally cached between scans."""
