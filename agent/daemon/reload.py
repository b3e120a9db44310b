"""Settings that change while the daemon runs: by a file, by the Node's label, or when asked.

A configuration that does not do changes nothing: the one before stays in force, and that is said.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import structlog

from agent.config import ConfigFile, Resolved, Settings, key, options
from agent.config.named import Chosen, chosen, listed
from agent.config.origin import Place
from agent.errors import AgentError, InputError
from agent.health.notices import Notice
from agent.publish.node_config import NodeConfigWatch, SeenLabel

# Where the settings of a running daemon come from, to be read again.

Stamp = tuple[tuple[str, int, int, int], ...]
"""Name, inode, time of change in ns and size of each file; equal stamps, equal contents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the process was started with: flags and environment stay, files are read again.

    Attributes:
        flags: by field name.
        nvidia_flags: by NVIDIA's name.
        file: the name of the configuration file; ``None`` for none.
        read: returns the text of a file, or raises :class:`~agent.errors.InputError`.
    """

    read: Callable[[str], str]
    flags: Mapping[str, object] = field(default_factory=dict)
    nvidia_flags: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None

    def resolved(self, named: Chosen | None = None) -> Resolved:
        """Read all and join it, with the file of *named* over that of all nodes.

        Raises:
            InputError: something cannot be read, or does not do.
        """
        return Resolved.of(
            flags=self.flags,
            environment=self.environment,
            file=self._file(self.file, Place.FILE),
            named=None if named is None else self._file(_text(named.path), Place.NAMED_FILE),
            nvidia_flags=self.nvidia_flags,
        )

    def stamp(self, settings: Settings) -> Stamp:
        """Return what changes when a file that *settings* come from does.

        A mounted ConfigMap is replaced by a link to another directory, which gives each file
        another inode.
        """
        return tuple(_stamps(self._paths(settings)))

    def _paths(self, settings: Settings) -> Iterator[Path]:
        if self.file is not None:
            yield Path(self.file)
        if settings.bandwidth_table is not None:
            yield settings.bandwidth_table
        if settings.config_dir is not None:
            try:
                yield from listed(settings.config_dir).values()
            except InputError:
                return  # for a while, or for good: reading says so

    def _file(self, name: str | None, place: Place) -> ConfigFile | None:
        return None if name is None else ConfigFile(name=name, text=self.read(name), place=place)


def choose(settings: Settings, label: str | None, now: Chosen | None) -> Chosen:
    """Return the named config of a node whose label has the value *label*.

    One that is in force (*now*) stays where the label names none.

    Raises:
        InputError: there is none to take.
    """
    assert settings.config_dir is not None
    files = listed(settings.config_dir)
    found = chosen(
        files,
        label=label,
        label_key=settings.config_label,
        default=settings.default_config,
        fallbacks=settings.config_fallbacks,
    )
    if found.problem is None or now is None:
        return found
    if now.path is not None and now.path not in files.values():
        raise InputError(found.problem, "correct the label, or add that file")
    return Chosen(name=now.name, path=now.path, why=now.why, problem=found.problem)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _stamps(paths: Iterator[Path]) -> Sequence[tuple[str, int, int, int]]:
    return [_stamp(path) for path in paths]


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return str(path), 0, 0, 0  # its coming back is a change
    return str(path), found.st_ino, found.st_mtime_ns, found.st_size


LABEL_WAIT_S = 5.0
"""How long the start waits for the Node's label. Without it the daemon would offer resources that
the node is not to have, and pods could take devices of them; with an API server that does not
answer it must still serve the pods of this node, which wait for it after a reboot."""


LOOK_S = 2.0
"""How often files are looked at. A changed one is read once it was left alone for so long, for a
file that is still being written may be good YAML already."""


REFUSED = "ConfigRefused"


CHANGED = "ConfigChanged"
"""Reasons of Events."""


_MOST_NOTICES = 16


Apply = Callable[[Settings], None]
"""Puts settings in force, or raises :class:`~agent.errors.AgentError` and leaves those before."""


class Reloader:
    """Holds the settings in force. One thread polls; any may ask, or read what is in force."""

    def __init__(
        self,
        sources: Sources,
        base: Resolved,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with *base*, which *sources* gave without a named config.

        Where the Node's label chooses a config, wait a little for it, and read that.

        Raises:
            InputError: there is no config to take, or it does not do.
        """
        self._sources = sources
        self._clock = clock
        self.on_news: Callable[[], None] = _nothing
        """Called by any thread when there may be something to poll for."""
        self._stopping = threading.Event()
        self._is_asked = threading.Event()
        self._notices: deque[Notice] = deque(maxlen=_MOST_NOTICES)
        self._refused: str | None = None
        self._pending: Mapping[str, object] = {}
        self._missing: str | None = None
        self._failures = 0
        self._config: Chosen | None = None
        self._read_label: SeenLabel | None = None
        self._current = base
        self._watch = self._watch_node()
        if base.settings.config_dir is not None:
            try:
                self._current, self._config = self._read()
            except AgentError:
                self.close()
                raise
        self._tell_missing(self._config)
        self._stamp = self._seen_stamp = sources.stamp(self._current.settings)
        self._next_look = clock() + LOOK_S

    @property
    def current(self) -> Resolved:
        """What is in force; origins and warnings are of the last reading that was accepted."""
        return self._current

    @property
    def config(self) -> Chosen | None:
        """The named config in force; ``None`` where settings name no directory of them."""
        return self._config

    @property
    def label_problem(self) -> str | None:
        """Why the label that chooses the config is not known; ``None`` where it is."""
        if self._config is None or self._label() is not None:
            return None
        if self._watch is None:
            return "no API server is known"
        return self._watch.problem or "the API server has not answered, or has no such Node"

    @property
    def watch(self) -> NodeConfigWatch | None:
        """What follows the Node; ``None`` where nothing does."""
        return self._watch

    @property
    def failures(self) -> int:
        """How many changes were refused since the start."""
        return self._failures

    def notices(self) -> tuple[Notice, ...]:
        """Return what a person should learn, and forget it."""
        found = []
        while self._notices:
            found.append(self._notices.popleft())
        return tuple(found)

    def ask(self) -> None:
        """Have everything read again by the next :meth:`poll`; safe in a signal handler."""
        self._is_asked.set()
        self._wake()

    def poll(self, apply: Apply) -> None:
        """Read again what has changed, if anything has, and give it to *apply*."""
        has_changed = self._has_changed() or self._label() != self._read_label
        if self._is_asked.is_set() or has_changed:
            self._is_asked.clear()
            self.reload(apply)

    def reload(self, apply: Apply) -> None:
        """Read everything again and give it to *apply*; what does not do is refused and said."""
        self._stamp = self._seen_stamp = self._sources.stamp(self._current.settings)
        try:
            found, config = self._read()
            settings = self._with_fixed(found.settings)
            apply(settings)
        except AgentError as error:
            self._refuse(str(error))
            return
        self._refused = None
        self._accept(replace(found, settings=settings), config)

    def close(self) -> None:
        """End the watch of the Node."""
        self._stopping.set()

    def _wake(self) -> None:
        self.on_news()  # whichever it is by then

    def _read(self) -> tuple[Resolved, Chosen | None]:
        settings = self._current.settings  # what chooses a config stays as at the start
        self._read_label = seen = self._label()
        if settings.config_dir is None:
            return self._sources.resolved(), None
        config = choose(settings, None if seen is None else seen.value, self._config)
        return self._sources.resolved(config), config

    def _label(self) -> SeenLabel | None:
        return None if self._watch is None else self._watch.seen

    def _watch_node(self) -> NodeConfigWatch | None:
        """Return the watch of the Node, running, after a first answer or a bounded wait."""
        settings = self._current.settings
        is_reachable = (
            settings.kubeconfig is not None
            or "KUBERNETES_SERVICE_HOST" in self._sources.environment
        )
        if settings.config_dir is None or not is_reachable:
            return None
        watch = NodeConfigWatch(
            settings.kubeconfig, settings.node_name, settings.config_label, self._wake
        )
        threading.Thread(
            target=watch.run, args=(self._stopping,), name="node config", daemon=True
        ).start()
        if watch.wait(LABEL_WAIT_S) is None:
            structlog.get_logger().warning(
                "config label not known in time",
                label=settings.config_label,
                waited_s=LABEL_WAIT_S,
                problem=watch.problem,
            )
        return watch

    def _has_changed(self) -> bool:
        """Tell whether a file has changed and been left alone since."""
        now = self._clock()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_S
        before, self._seen_stamp = (
            self._seen_stamp,
            self._sources.stamp(self._current.settings),
        )
        return self._seen_stamp == before != self._stamp

    def _with_fixed(self, found: Settings) -> Settings:
        """Return *found* with what takes a new start as it is now, and say what that is."""
        now = self._current.settings
        fixed = {name: getattr(now, name) for name, one in options().items() if not one.is_live}
        pending = {
            name: getattr(found, name)
            for name, value in fixed.items()
            if getattr(found, name) != value
        }
        if pending and pending != self._pending:
            structlog.get_logger().warning(
                "settings take effect when the daemon starts anew",
                settings=[key(name) for name in pending],
            )
        self._pending = pending
        return replace(found, **fixed)

    def _accept(self, found: Resolved, config: Chosen | None) -> None:
        before, self._current = self._current, found
        was, self._config = self._config, config
        if found.settings.bandwidth_table != before.settings.bandwidth_table:
            self._stamp = self._seen_stamp = self._sources.stamp(found.settings)
        log = structlog.get_logger()
        for text in found.warnings:
            if text not in before.warnings:
                log.warning("setting", about=text)
        changed = [
            key(item.name)
            for item in fields(Settings)
            if getattr(found.settings, item.name) != getattr(before.settings, item.name)
        ]
        name = None if config is None else config.name
        log.info("configuration read", changed=changed, config=name)
        if changed or (was is not None and was.name != name):
            what = f"configuration {name}" if config is not None and name else "configuration"
            of = ", ".join(changed) or "nothing"
            self._note(CHANGED, f"{what} is in force; changed: {of}", is_warning=False)
        self._tell_missing(config)

    def _tell_missing(self, config: Chosen | None) -> None:
        """Say, once, that the label names a config that is not there."""
        problem = None if config is None else config.problem
        if problem is not None and config is not None and problem != self._missing:
            kept = f"{problem}; in force is {config.name or 'none'}, by {config.why}"
            self._tell_refusal(kept)
        self._missing = problem

    def _refuse(self, problem: str) -> None:
        if problem != self._refused:
            self._refused = problem
            self._tell_refusal(problem)

    def _tell_refusal(self, problem: str) -> None:
        self._failures += 1
        name = None if self._config is None else self._config.name
        structlog.get_logger().error("configuration refused", problem=problem, config=name)
        self._note(REFUSED, problem, is_warning=True)

    def _note(self, reason: str, message: str, *, is_warning: bool) -> None:
        self._notices.append(
            Notice(reason=reason, message=message, is_warning=is_warning, gpu=None, key="config")
        )


def _nothing() -> None:
    """Wake nobody."""
