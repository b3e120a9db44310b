"""A node of a few GPUs to which things happen, one after another, by a clock that tests move."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodetopo.components.gpus.health.ledger import after_events, after_look, after_time, view
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import HealthState
from nodetopo.model.gpu import Gpu, Mig, RemappedRows
from nodetopo.model.gpu_health import GpuHealth, HealthView
from nodetopo.model.nvlink import NvLink
from nodetopo.model.nvml_event import EventKind, NvmlEvent, NvmlStatus, NvmlTrouble
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot

A, B, C = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"
FINE = NvmlStatus()
PENDING = RemappedRows(correctable=0, uncorrectable=1, is_pending=True, has_failed=False)
FAILED = RemappedRows(correctable=0, uncorrectable=9, is_pending=False, has_failed=True)
REMAPPED = RemappedRows(correctable=0, uncorrectable=1, is_pending=False, has_failed=False)
PARTED = Mig(is_enabled=True)


def address(index: int) -> PciAddress:
    return PciAddress(0, 0x10 + index, 0, 0)


def gpu(index: int, **facts: Any) -> Gpu:
    """Return a GPU that says it needs nothing, but for *facts*."""
    uuid = (A, B, C)[index]
    sound = {"recovery_action": 0, "remapped_rows": REMAPPED, "retired_pages_pending": False}
    given = {**sound, "pci": address(index), **facts}
    return Gpu(index=index, uuid=uuid, **given)


def node(*gpus: Gpu, links: int = 4, **facts: Any) -> Snapshot:
    """Return a node that shows *gpus* on its bus, each with so many NVLinks, all up."""
    given = {
        "pci_gpus": tuple(one.pci for one in gpus if one.pci is not None),
        "nvlinks": tuple(
            NvLink(gpu=one.index, link=link, is_active=True)
            for one in gpus
            for link in range(links)
        ),
        **facts,
    }
    return Snapshot(gpus=gpus, **given)


SOUND = node(gpu(0), gpu(1))


def seen(**facts: Any) -> Snapshot:
    """Return the node with *facts* about GPU0."""
    return node(gpu(0, **facts), gpu(1))


def with_links_down(count: int) -> Snapshot:
    """Return the node with *count* links of GPU0 down."""
    links = tuple(
        replace(link, is_active=not (link.gpu == 0 and link.link < count))
        for link in SOUND.nvlinks or ()
    )
    return replace(SOUND, nvlinks=links)


def xid(code: int, on: str | None = A, count: int = 1) -> NvmlEvent:
    return NvmlEvent(kind=EventKind.XID, gpu=on, xid=code, count=count)


def told(kind: EventKind, on: str | None = A) -> NvmlEvent:
    return NvmlEvent(kind=kind, gpu=on)


def trouble(kind: NvmlTrouble, failures: int = 1, code: int | None = None) -> NvmlStatus:
    return NvmlStatus(trouble=kind, failures=failures, code=code, cause="NVML said so")


@dataclasses.dataclass
class Story:
    """The state after all that was told, and the clock."""

    rules: HealthRules = dataclasses.field(default_factory=HealthRules)
    now: float = 1000.0
    state: HealthState = dataclasses.field(default_factory=lambda: HealthState(boot_id="one"))

    @property
    def view(self) -> HealthView:
        """The verdicts now."""
        return view(self.state)

    def reason(self, name: str = A) -> str | None:
        """Return the reason of one verdict."""
        health = self.view.get(name)
        return None if health is None else health.reason

    def health(self, name: str = A) -> GpuHealth:
        """Return one verdict, that of a sound GPU if there is none."""
        return self.view.get(name, GpuHealth())

    def events(self, *events: NvmlEvent) -> "Story":
        """Let NVML tell *events* in one batch."""
        self.state = after_events(self.state, events, self.now, self.rules)
        return self

    def look(
        self, snapshot: Snapshot = SOUND, nvml: NvmlStatus = FINE, took_s: float = 0.0
    ) -> "Story":
        """Scan the node, in no time or in *took_s* that have passed already."""
        began = self.now - took_s
        self.state = after_look(self.state, snapshot, nvml, self.now, self.rules, began=began)
        return self

    def wait(self, seconds: float, *, is_paused: bool = False) -> "Story":
        """Let time pass; the daemon tells so once a second, here once is enough."""
        self.now += seconds
        self.state = after_time(self.state, self.now, self.rules, is_paused=is_paused)
        return self

    def looks_for(self, seconds: float, snapshot: Snapshot = SOUND) -> "Story":
        """Look now and after so many seconds."""
        return self.look(snapshot).wait(seconds).look(snapshot)


def reasons(view: HealthView) -> Mapping[str, str | None]:
    return {name: health.reason for name, health in view.items()}
