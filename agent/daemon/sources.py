"""Where the settings of a running daemon come from, to be read again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.config import ConfigFile, Resolved, Settings
from agent.config.named import Chosen, chosen, listed
from agent.config.origin import Place
from agent.errors import InputError

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
