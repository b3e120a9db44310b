"""Named configs of a node: files of one directory, such as a mounted ConfigMap.

The choice follows NVIDIA (k8s-device-plugin v0.19.0, cmd/config-manager): the config named by a
label of the Node, else the default, else the first fallback that exists.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from nodetopo.errors import InputError

DEFAULT_NAME = "default"
"""The config that the fallback ``named`` takes (config-manager, NamedConfigFallback)."""

ENDINGS = (".yaml", ".yml")
"""May follow the name of a config; a key of a ConfigMap often has none."""

_MOST_SHOWN = 10


class Chosen(Struct, frozen=True, kw_only=True):
    """The config chosen for a node."""

    name: str | None  # ``None`` for the empty one
    path: Path | None  # its file; ``None`` for the empty one
    why: str  # the reason for the choice, for people
    # Why the label's config is not used; ``None`` if it is, or without a label.
    problem: str | None = None


def listed(directory: Path) -> Mapping[str, Path]:
    """Return the files of *directory* by their names.

    An entry that begins with two dots is how a mounted ConfigMap is updated, and no config.

    Raises:
        InputError: it cannot be read.
    """
    try:
        paths = [path for path in sorted(directory.iterdir()) if path.is_file()]
    except OSError as error:
        what = f"cannot read the configs in {directory}: {error.strerror}"
        raise InputError(what, "mount a ConfigMap there, or set another config-dir") from None
    return {path.name: path for path in paths if not path.name.startswith("..")}


def chosen(
    files: Mapping[str, Path],
    *,
    label: str | None,
    label_key: str,
    default: str | None,
    fallbacks: Sequence[str],
) -> Chosen:
    """Return which of *files* a node takes whose label *label_key* has the value *label*.

    A label that names no file counts as none, but that is a problem of the answer.

    Raises:
        InputError: the default names no file, or no fallback exists.
    """
    problem = None
    if label:
        if (path := _file(files, label)) is not None:
            return Chosen(name=label, path=path, why=f"label {label_key}")
        problem = f"the label {label_key} names the config {label!r}, and {_known(files)}"
    if default is not None:
        if (path := _file(files, default)) is None:
            what = f"default-config names {default!r}, and {_known(files)}"
            raise InputError(what, "add that file, or name another")
        return Chosen(name=default, path=path, why="default-config", problem=problem)

    for fallback in fallbacks:
        why = f"fallback {fallback}"
        match fallback:
            case "named" if (path := _file(files, DEFAULT_NAME)) is not None:
                return Chosen(name=DEFAULT_NAME, path=path, why=why, problem=problem)
            case "single" if len(files) == 1:
                (path,) = files.values()
                return Chosen(name=_name(path), path=path, why=why, problem=problem)
            case "empty":
                return Chosen(name=None, path=None, why=why, problem=problem)
    nothing = f"no fallback of {', '.join(fallbacks)} chooses a config, and {_known(files)}"
    cure = f"set default-config, or add a config called {DEFAULT_NAME}"
    raise InputError(f"{problem}; {nothing}" if problem else nothing, cure)


def _file(files: Mapping[str, Path], name: str) -> Path | None:
    spellings = (name, *(name + ending for ending in ENDINGS))
    return next((files[spelling] for spelling in spellings if spelling in files), None)


def _name(path: Path) -> str:
    return path.stem if path.suffix in ENDINGS else path.name


def _known(files: Mapping[str, Path]) -> str:
    names = [_name(path) for path in files.values()]
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"there is {', '.join(names[:_MOST_SHOWN])}{more}" if names else "there is none"
