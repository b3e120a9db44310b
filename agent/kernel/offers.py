"""What components offer to each other, through the kernel."""

from collections.abc import Collection, Mapping
from typing import Protocol

from agent.allocation.remainder import Ends
from agent.allocation.rules import Rules as PlacementRules
from agent.daemon.rdma_plugins import ServedPool
from agent.deviceplugin.plugin import Absence, DevicePlugin
from agent.dra.neighbours import ServedByDra
from agent.health.hca import HcaHealthView
from agent.health.status import HealthView
from agent.model.dra import PublishedDevice
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.rdmaplugin.joint import JointPlacement


class OfferedGpus(Protocol):
    """What the GPUs' component offers to others."""

    has_claims: bool
    """Set by whoever gives out GPUs by claim although that is off: their CDI names are needed."""

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has all that there is to offer; not before it is known what."""

    @property
    def is_decided(self) -> bool:
        """Whether the kubelet has all that there is to offer, or it is known why it has not."""

    @property
    def taken(self) -> Snapshot | None:
        """The snapshot that is offered; ``None`` before the first."""

    @property
    def published(self) -> Snapshot | None:
        """The same with lost GPUs; another object only where it says something new."""

    @property
    def absences(self) -> Mapping[str, tuple[Absence, ...]]:
        """When no kubelet had the devices of a resource from us, by resource."""

    @property
    def running(self) -> Mapping[str, DevicePlugin]:
        """Every device plugin by its resource."""

    @property
    def pools(self) -> tuple[ServedPool, ...]:
        """The pools of HCAs that are served now, in the order of their file."""

    @property
    def joint(self) -> JointPlacement:
        """Coordinates the GPU and HCA choices for one container."""

    def offerable(self, snapshot: Snapshot, /) -> tuple[Gpu, ...]:
        """Return the GPUs of *snapshot* that the settings do not exclude."""

    def placement_rules(self, snapshot: Snapshot, /) -> PlacementRules:
        """Return the rules by which whole GPUs of *snapshot* are chosen."""

    def cdi_names(self, uuids: Collection[str], /) -> tuple[str, ...]:
        """Return the CDI names of GPUs and MIG devices; raises UnreadableError."""

    def expect(self, ends: Ends, /) -> None:
        """Choose by when devices in use are expected to be free, given by id."""


class Verdicts(Protocol):
    """The health of the GPUs."""

    @property
    def view(self) -> HealthView:
        """The verdicts, by GPU; replaced as a whole, never changed."""


class WatchedHcas(Protocol):
    """The health of the HCAs, which are watched while they are offered."""

    @property
    def known(self) -> Collection[object]:
        """The HCAs that scans have shown."""

    @property
    def view(self) -> HcaHealthView:
        """The verdicts, by key; replaced as a whole, never changed."""

    def take(self, snapshot: Snapshot, /) -> None:
        """Watch the HCAs of *snapshot*."""

    def rest(self) -> None:
        """Watch none."""


class Claims(Protocol):
    """What DRA drivers give out on the node."""

    @property
    def devices(self) -> tuple[PublishedDevice, ...] | None:
        """The devices that all drivers publish for the node; ``None`` before they are known."""

    def look(self, snapshot: Snapshot, /) -> ServedByDra:
        """Return what drivers give out on the node of *snapshot*, which has lost GPUs, too."""


class Scans(Protocol):
    """The loop that reads the node."""

    is_blind: bool
    """Whether the last scan got no reading of NVML."""

    def scan_soon(self) -> None:
        """Scan before the interval is over."""

    def scan_whole(self) -> None:
        """Scan soon, and read also what is kept from scan to scan."""
