"""The contract between the kernel and a component.

A component is a folder of :mod:`nodetopo.components`:

- ``settings`` declares its settings, and ``terms`` says when it starts and whether the settings ask
  for it; both are small, and imported in every daemon;
- ``component`` has the class, a :class:`Component`; the module is imported only when an enabled
  component starts;
- ``metrics``, if the component has any, has its families. It loads prometheus_client, so a
  component that starts at once keeps the record that they are made from in ``reading``.

Components do not import each other. A component serves others through a protocol of
:mod:`nodetopo.kernel.offers`, and an attribute of :class:`Kernel`.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol

import structlog
from msgspec import Struct, field

from nodetopo.formats.harmless import harmless
from nodetopo.formats.responses import texts
from nodetopo.kernel.events import EventPublisher, EventWriter, NodeEvent
from nodetopo.kernel.loops import Heartbeats, Loop
from nodetopo.kernel.offers import Claims, Companion, NoCompanion, OfferedGpus, Scans, Verdicts
from nodetopo.kernel.requester import Requesters
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.reload import Reloader
from nodetopo.kernel.shown import Shown
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kernel.target import Target
from nodetopo.kubeapi.access import is_known
from nodetopo.kubeapi.watch import NodeWatch
from nodetopo.model.dra import PublishedDevice
from nodetopo.model.notice import Notice
from nodetopo.model.nvml_event import NvmlEvent

QUIET_S = 3.0
"""Pause between the registration and the non-critical loops: waiting pods request their GPUs then.
"""

MOST_S = 30.0
"""Longest wait for a registration. It never comes if another plugin has the resource or no kubelet
runs.
"""

STEP_S = 0.5
"""How often it is checked."""

LONGEST_LINE = 1000
"""Characters of a reason of /readyz: drivers and other plugins wrote parts of some."""

Metadata = Mapping[str, Any]
"""Of the Node object."""

Answer = Callable[[str], Any]
"""Answers a request for a path with its query; ``None`` where there is no such page."""


class Start(Enum):
    """When a component is imported and its loops start; to load one takes CPU from pods."""

    AT_ONCE = auto()
    DECIDED = auto()
    """The devices are registered, or it is known why they are not."""
    REGISTERED = auto()
    """The devices are registered, and the pods that waited for them had time to ask."""


class Terms(Protocol):
    """The module ``terms`` of a component.

    ``check(settings)``, if there is one, raises :class:`~nodetopo.errors.AgentError` for settings
    that cannot be used, before anything starts. ``resources(settings)``, if there is one, returns
    the names of the resources that the component would offer to the kubelet.
    """

    START: Start

    def is_wanted(self, kernel: "Kernel") -> bool:
        """Return whether the settings enable the component on this node."""


class Component:
    """One subject of the daemon; a subclass overrides the methods it needs.

    Only loops block. All other methods are quick, open nothing, and are safe in any thread.
    """

    name = ""
    """Of its folder; the kernel sets it."""

    def __init__(self, kernel: "Kernel") -> None:
        """Prepare; start nothing.

        Raises:
            AgentError: the settings do not fit this machine.
        """
        self.kernel = kernel

    def loops(self) -> Iterable[tuple[str, Loop]]:
        """Return the loops to run, by name; each takes a thread. Called once."""
        return ()

    def reconfigured(self, settings: Settings) -> Callable[[], None]:  # noqa: ARG002 - see below
        """Validate changed settings; return a callable that applies them.

        Raises:
            AgentError: they cannot be used; every component then keeps the previous settings.
        """
        return lambda: None

    def notices(self) -> Iterable[Notice]:
        """Return the notices since the last call, and forget them."""
        return ()

    def not_ready(self) -> Iterable[str]:
        """Return the reasons that keep GPUs from pods, each ``Reason: sentence``."""
        return ()

    def observed(self) -> object:
        """Return the reading from which the component's metrics are made."""
        return self

    def shown(self) -> Shown:
        """Return the component's rows of the status page."""
        return Shown()

    def wake(self) -> None:
        """Have loops that wait for news see now that the daemon stops."""

    def close(self) -> None:
        """Release all resources; the loops have ended."""


class NvmlEvents:
    """Passes on the GPUs' events, and keeps them until a component subscribes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[NvmlEvent] = []
        self._take: Callable[[Sequence[NvmlEvent]], None] | None = None

    def take(self, events: Sequence[NvmlEvent]) -> None:
        """Pass *events* on; called by threads that must not wait."""
        with self._lock:
            if self._take is None:
                self._waiting += events
                return
        self._take(events)

    def subscribe(self, take: Callable[[Sequence[NvmlEvent]], None]) -> None:
        """Call *take* with the waiting events and with all later ones."""
        with self._lock:
            waiting, self._waiting, self._take = self._waiting, [], take
        if waiting:
            take(waiting)


def _start_nothing(_name: str, _loop: Loop) -> None:
    """Stand for the supervisor of loops before there is one."""


def _admit_nobody(_settings: Settings) -> Callable[[], None]:
    """Stand for the same."""
    return lambda: None


class Kernel(Struct, kw_only=True):
    """One run of the daemon, as its components see it."""

    settings: Settings  # in force now; replaced when they change
    target: Target  # the machine to read and the kubelet to serve
    store: SnapshotStore = field(default_factory=SnapshotStore)  # holds the latest snapshot
    # Set by any component whose news can change the offered devices.
    wake: threading.Event = field(default_factory=threading.Event)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)  # for the liveness probe
    reloader: Reloader | None = None  # ``None`` where settings never change
    events: EventPublisher | None = None  # posts Events about the Node; ``None`` where none are
    # Every writer of Events, for their counts.
    writers: list[EventWriter] = field(default_factory=list)
    nvml_events: NvmlEvents = field(default_factory=NvmlEvents)  # GPU events between scans
    metrics_url: str | None = None  # ``None`` where no metrics are served
    # gpus, health: the GPUs and their health; ``None`` where health is not watched.
    gpus: OfferedGpus | None = None
    health: Verdicts | None = None
    scans: Scans | None = None  # the loop that reads the node
    companion: Companion = field(default_factory=NoCompanion)  # offers other devices alongside GPUs
    # Find the container that a call of the kubelet is for.
    requesters: Requesters = field(default_factory=Requesters)
    claims: Claims | None = None  # ``None`` without an API server
    page: Answer | None = None  # answers requests for pages; ``None`` where there are none
    page_everywhere: bool = False  # whether clients of other hosts can see them too
    start: Callable[[str, Loop], None] = _start_nothing  # runs a loop in a thread, by its name
    # Checks changed settings for components that they may start, as ``reconfigured`` of a component
    # does; returns the function that starts them.
    admit: Callable[[Settings], Callable[[], None]] = _admit_nobody
    # The components that exist, in the order of the table; replaced, not changed, because other
    # threads iterate over them.
    running: tuple[Component, ...] = ()
    failure: str | None = None  # why the container must be restarted; normally ``None``
    watch: NodeWatch | None = None  # the watch of the Node; ``None`` before it exists
    wants_watch: bool = False  # whether a component needs the watch even if labels don't
    _followers: list[Callable[[Metadata | None], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Post Events about the Node, if enabled."""
        if self.settings.publish_events:
            self.events = EventPublisher(self.settings.kubeconfig, self.settings.node_name)
            self.writers.append(self.events)
        if self.reloader is not None:
            self.watch = self.reloader.watch

    @property
    def has_api(self) -> bool:
        """Whether the API server is known and the daemon keeps running after registration."""
        settings = self.settings
        return self.target.is_real and not settings.once and is_known(settings.kubeconfig)

    @property
    def config(self) -> str | None:
        """The name of the config in force; ``None`` if no config is chosen by name."""
        chosen = None if self.reloader is None else self.reloader.config
        return None if chosen is None else chosen.name

    def published(self) -> tuple[PublishedDevice, ...] | None:
        """Return the devices that DRA drivers publish for the node; ``None`` where not known."""
        return None if self.claims is None else self.claims.devices

    def wait_registered(self, stopping: threading.Event) -> bool:
        """Wait until some time after the registration; return whether *stopping* was set."""
        return wait_registered(stopping, lambda: self.gpus is not None and self.gpus.is_registered)

    def reload(self) -> None:
        """Put changed settings in force, in every component or in none."""
        if self.reloader is None:
            return

        def apply(settings: Settings) -> None:
            start_admitted = self.admit(settings)
            changes = [component.reconfigured(settings) for component in self.running]
            self.settings = settings
            for change in reversed(changes):  # the GPUs come last, with all that joins them
                change()
            start_admitted()

        self.reloader.poll(apply)

    def notices(self) -> Iterator[Notice]:
        """Yield the notices of the settings and of all components, and forget them."""
        if self.reloader is not None:
            yield from self.reloader.notices()
        for component in self.running:
            yield from component.notices()

    def not_ready(self) -> str | None:
        """Return why /readyz fails, a line ``Reason: sentence`` each; ``None`` if it succeeds."""
        return joined(line for component in self.running for line in component.not_ready())

    def report(self, notices: Iterable[Notice]) -> None:
        """Report *notices* in their order, in the log and as Events about the Node."""
        for notice in notices:
            log = structlog.get_logger()
            line = log.warning if notice.is_warning else log.info
            line("notice", reason=notice.reason, message=notice.message, gpu=notice.gpu)
            if self.events is not None:
                self.events.post(
                    NodeEvent(
                        reason=notice.reason,
                        message=notice.message,
                        is_warning=notice.is_warning,
                        key=notice.key,
                    )
                )

    def follow_node(self, take: Callable[[Metadata | None], None]) -> None:
        """Have *take* called with the Node's metadata when it changes, by the watch's thread."""
        self._followers.append(take)
        if self.watch is not None:
            self.watch.subscribe(take)

    def use_watch(self, watch: NodeWatch) -> None:
        """Follow the Node by *watch*, which the caller runs."""
        if self.watch is not watch:
            self.watch = watch
            for take in self._followers:
                watch.subscribe(take)


def wait_registered(
    stopping: threading.Event, is_registered: Callable[[], bool], *, quiet_s: float = QUIET_S
) -> bool:
    """Wait until *quiet_s* after the registration, for at most :data:`MOST_S`.

    Returns: Whether *stopping* was set.
    """
    for _ in range(round(MOST_S / STEP_S)):
        if is_registered() or stopping.wait(STEP_S):
            break
    return stopping.wait(quiet_s)


def joined(reasons: Iterable[str]) -> str | None:
    """Join *reasons* for not being ready, a line each; return ``None`` without any."""
    return "\n".join(harmless(reason, LONGEST_LINE) for reason in reasons) or None


def labels_of(node: Metadata | None) -> Mapping[str, str] | None:
    """Return the labels of the Node with the metadata *node*; ``None`` where it is gone."""
    return None if node is None else texts(node, "labels")
