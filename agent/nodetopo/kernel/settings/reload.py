"""Settings that change while the daemon runs: by a file, by the Node's label, or on request.

An invalid configuration is rejected and the current one stays active; that is reported once.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.errors import AgentError, InputError
from nodetopo.kernel.settings.declare import Settings, files, key, options
from nodetopo.kernel.settings.named import Chosen, chosen, listed
from nodetopo.kernel.settings.node_config import NodeConfigWatch, SeenLabel
from nodetopo.kernel.settings.origin import ConfigFile, Given, SettingSource
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.model.notice import Notice
from nodetopo.outage import Outage

LABEL_WAIT_S = 5.0
"""How long the start waits for the Node's label. Without it the daemon would offer resources that
the node should not have, and pods could take devices of them; with an API server that does not
answer it must still serve the pods of this node, which wait for it after a reboot."""

LOOK_S = 2.0
"""Interval between checks of the files.

A changed file is read once it has been unchanged for this long, because a partly written file can
be valid YAML.
"""

REFUSED, CHANGED = "ConfigRefused", "ConfigChanged"
"""Reasons of Events."""

_MOST_NOTICES = 16

Stamp = Mapping[Path, tuple[int, int, int]]
"""Inode, time of change in ns and size of each file; equal stamps, equal contents."""

Apply = Callable[[Settings], None]
"""Puts settings in force; raises :class:`~nodetopo.errors.AgentError` and keeps those before."""


class Sources(Struct, frozen=True, kw_only=True):
    """The sources of the settings: flags and environment are fixed, files are reread."""

    # Returns the text of a file, or raises :class:`~nodetopo.errors.InputError`.
    read: Callable[[str], str]
    flags: Mapping[str, object] = field(default_factory=dict)  # by field name
    nvidia_flags: Mapping[str, str] = field(default_factory=dict)  # by NVIDIA's name
    environment: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None  # the name of the configuration file; ``None`` for none

    def resolved(
        self, named: Chosen | None = None, fixed: Mapping[str, Given] = MappingProxyType({})
    ) -> Resolved:
        """Read and resolve all sources; the file of *named* overrides the common file.

        *fixed* overrides everything, as in :meth:`Resolved.of`.

        Raises:
            InputError: a source cannot be read or is invalid.
        """
        path = None if named is None or named.path is None else str(named.path)
        return Resolved.of(
            flags=self.flags,
            environment=self.environment,
            file=self._config_file(self.file, SettingSource.FILE),
            named=self._config_file(path, SettingSource.NAMED_FILE),
            nvidia_flags=self.nvidia_flags,
            fixed=fixed,
        )

    def stamp(self, settings: Settings, refused: Settings | None = None) -> Stamp:
        """Return a value that differs after a change of a file that *settings* come from.

        A file of *refused* settings counts too: it can be what they lacked.

        A mounted ConfigMap is replaced by a link to another directory, which gives each file
        another inode.
        """
        paths = [] if self.file is None else [Path(self.file)]
        paths += files(settings)
        paths += () if refused is None else files(refused)
        if settings.config_dir is not None:
            with suppress(InputError):  # missing for a while, or for good: reading reports it
                paths += listed(settings.config_dir).values()
        return _stamp(paths)

    def _config_file(self, name: str | None, place: SettingSource) -> ConfigFile | None:
        return None if name is None else ConfigFile(name=name, text=self.read(name), place=place)


def _stamp(paths: Iterable[Path]) -> Stamp:
    stamps = {}
    for path in paths:
        try:
            stat = path.stat()
            stamps[path] = stat.st_ino, stat.st_mtime_ns, stat.st_size
        except (OSError, ValueError):
            stamps[path] = 0, 0, 0  # its coming back is a change
    return stamps


class Reloader:
    """Holds the settings in force.

    One thread polls; any thread can ask for a reload or read them.
    """

    def __init__(
        self,
        sources: Sources,
        base: Resolved,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Hold *base*, resolved from *sources* without a named config; read nothing yet."""
        self._sources = sources
        self._clock = clock
        self.on_news: Callable[[], None] = lambda: None
        """Called by any thread when a poll may find changes."""
        self._stopping = threading.Event()
        self._is_asked = threading.Event()
        self._notices: deque[Notice] = deque(maxlen=_MOST_NOTICES)
        self._refused = Outage()
        self._missing = Outage()
        self._pending: Mapping[str, object] = {}
        self.failures = 0  # how many changes were refused since the start
        # The named config in force; ``None`` where settings name no directory of them.
        self.config: Chosen | None = None
        self._read_label: SeenLabel | None = None
        # The settings in force; origins and warnings are from the last accepted reading.
        self.current = base
        # The watch of the Node; ``None`` where no label is followed.
        self.watch: NodeConfigWatch | None = None
        self._rejected: Settings | None = None
        self._stamp: Stamp = {}
        self._seen_stamp: Stamp = {}
        self._next_look = clock()

    def start(self) -> None:
        """Read the named config of this node, if there is one, and follow all sources from now on.

        Where the Node's label chooses the config, this starts a watch of the Node and waits up to
        :data:`LABEL_WAIT_S` for its first answer.

        Raises:
            InputError: there is no config to take, or it is invalid.
        """
        settings = self.current.settings
        if settings.config_dir is not None:
            in_cluster = "KUBERNETES_SERVICE_HOST" in self._sources.environment
            if settings.kubeconfig is not None or in_cluster:
                self._watch_node()
        before = self._sources.stamp(settings)
        try:
            self.current, self.config = self._read()
        except AgentError:
            self.close()
            raise
        self._report_missing(self.config)
        self._follow(before, settings, self.current.settings)
        self._next_look = self._clock() + LOOK_S

    @property
    def label(self) -> SeenLabel | None:
        """The label that chooses the config; ``None`` if unknown."""
        return None if self.watch is None else self.watch.seen

    @property
    def label_problem(self) -> str | None:
        """Why the label that chooses the config is unknown; ``None`` where it is."""
        if self.config is None or self.label is not None:
            return None
        if self.watch is None:
            return "no API server is known"
        return self.watch.problem or "the API server has not answered, or has no such Node"

    def notices(self) -> tuple[Notice, ...]:
        """Return the notices since the last call, and forget them."""
        notices = []
        while self._notices:
            notices.append(self._notices.popleft())
        return tuple(notices)

    def ask(self) -> None:
        """Have everything read again by the next :meth:`poll`; safe in a signal handler."""
        self._is_asked.set()
        self.on_news()

    def poll(self, apply: Apply) -> None:
        """Read everything again if anything has changed, and give it to *apply*."""
        is_written = False
        if (now := self._clock()) >= self._next_look:
            self._next_look = now + LOOK_S
            before = self._seen_stamp
            self._seen_stamp = self._sources.stamp(self.current.settings, self._rejected)
            # It has changed and was left alone since.
            is_written = self._seen_stamp == before != self._stamp
        if self._is_asked.is_set() or is_written or self.label != self._read_label:
            self._is_asked.clear()
            self._reload(apply)

    def close(self) -> None:
        """End the watch of the Node."""
        self._stopping.set()

    def _watch_node(self) -> None:
        settings = self.current.settings
        self.watch = NodeConfigWatch(
            settings.kubeconfig,
            settings.node_name,
            settings.config_label,
            lambda: self.on_news(),  # noqa: PLW0108 - whichever it is by then
        )
        threading.Thread(
            target=self.watch.run, args=(self._stopping,), name="node config", daemon=True
        ).start()
        if self.watch.wait(LABEL_WAIT_S) is None:
            structlog.get_logger().warning(
                "config label not known in time",
                label=settings.config_label,
                waited_s=LABEL_WAIT_S,
                problem=self.watch.problem,
            )

    def _read(self) -> tuple[Resolved, Chosen | None]:
        """Read all sources; the settings that choose a config stay as at the start.

        A config in force stays if the label names none.
        """
        settings = self.current.settings
        self._read_label = label = self.label
        if settings.config_dir is None:
            return self._sources.resolved(), None
        files = listed(settings.config_dir)
        config = chosen(
            files,
            label=None if label is None else label.value,
            label_key=settings.config_label,
            default=settings.default_config,
            fallbacks=settings.config_fallbacks,
        )
        now = self.config
        if config.problem is not None and now is not None:
            if now.path is not None and now.path not in files.values():
                raise InputError(config.problem, "correct the label, or add that file")
            config = replace(now, problem=config.problem)
        return self._sources.resolved(config), config

    def _reload(self, apply: Apply) -> None:
        self._rejected = None
        self._stamp = self._seen_stamp = self._sources.stamp(self.current.settings)
        try:
            wanted, config = self._read()
            # What needs a restart stays as it is, and so does what follows from it.
            resolved = self._sources.resolved(config, self._fixed(wanted))
            self._rejected = resolved.settings  # until they are accepted
            self._stamp = self._seen_stamp = {**_stamp(files(self._rejected)), **self._stamp}
            apply(resolved.settings)
        except AgentError as error:
            if self._refused.failed(str(error)):
                self._report_refusal(str(error))
            return
        self._rejected = None
        self._refused.ended()
        self._accept(replace(resolved, nvidia=wanted.nvidia, warnings=wanted.warnings), config)

    def _fixed(self, wanted: Resolved) -> Mapping[str, Given]:
        """Return the values in force that need a restart; each set of changes is logged once."""
        now, fixed, pending = self.current, {}, {}
        for name, setting in options().items():
            if setting.is_live:
                continue
            value, asked = getattr(now.settings, name), getattr(wanted.settings, name)
            origin = wanted.origins[name]
            if value != asked:
                pending[name], origin = asked, f"{key(name)} in force until a restart"
            fixed[name] = Given(value=value, origin=origin, place=SettingSource.FLAG, is_ours=True)
        if pending and pending != self._pending:
            structlog.get_logger().warning(
                "settings take effect when the daemon starts anew",
                settings=[key(name) for name in pending],
            )
        self._pending = pending
        return fixed

    def _follow(self, read: Stamp, before: Settings, now: Settings) -> None:
        """Follow the files of *now*: those in *read* from their state then, before the reading."""
        gone = set(files(before)).difference(files(now))
        kept = {path: stamp for path, stamp in read.items() if path not in gone}
        self._stamp = self._seen_stamp = {**_stamp(files(now)), **kept}

    def _accept(self, resolved: Resolved, config: Chosen | None) -> None:
        before, self.current = self.current, resolved
        config_before, self.config = self.config, config
        self._follow(self._stamp, before.settings, resolved.settings)
        log = structlog.get_logger()
        for text in resolved.warnings:
            if text not in before.warnings:
                log.warning("setting", about=text)
        changed = [
            key(name)
            for name in options()
            if getattr(resolved.settings, name) != getattr(before.settings, name)
        ]
        name = None if config is None else config.name
        log.info("configuration loaded", changed=changed, config=name)
        if changed or (config_before is not None and config_before.name != name):
            what = "configuration" if name is None else f"configuration {name}"
            text = f"{what} is active; changed: {', '.join(changed) or 'nothing'}"
            self._notify(CHANGED, text, is_warning=False)
        self._report_missing(config)

    def _report_missing(self, config: Chosen | None) -> None:
        """Report, once, that the label names a config that is not there."""
        problem = None if config is None else config.problem
        if self._missing.changed(problem) and problem is not None and config is not None:
            name = config.name or "none"
            self._report_refusal(f"{problem}; {name} stays active, by {config.why}")

    def _report_refusal(self, problem: str) -> None:
        self.failures += 1
        name = None if self.config is None else self.config.name
        structlog.get_logger().error("configuration refused", problem=problem, config=name)
        self._notify(REFUSED, problem, is_warning=True)

    def _notify(self, reason: str, message: str, *, is_warning: bool) -> None:
        self._notices.append(
            Notice(reason=reason, message=message, is_warning=is_warning, gpu=None, key="config")
        )
