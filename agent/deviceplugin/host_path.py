"""Paths of another root: what a symbolic link in the host's tree means to the host.

The host's files lie below a mount of this process. ``/var/run -> /run`` leads to the host's
``/run`` there, not to this container's.
"""

from pathlib import Path, PurePosixPath

_MOST_LINKS = 40
"""On one path, as the kernel has it (linux/namei.h, MAXSYMLINKS)."""


def resolved(root: Path, path: str) -> str | None:
    """Return *path* without links, as a process whose root is *root* would follow them.

    ``None`` where it does not exist, or links go in circles. Neither *path* nor a link leads out
    of *root*: above it is nothing.
    """
    found = _followed(root, path)
    return found if found is not None and _exists(below(root, found)) else None


def seen(root: Path, path: Path) -> Path:
    """Return where this process finds *path* of *root*, which need not exist.

    Where links go in circles it is the path as it was given.
    """
    found = _followed(root, str(path))
    return below(root, str(path) if found is None else found)


def below(root: Path, path: str) -> Path:
    """Return the absolute *path* put under *root*, links and all."""
    return root / path.removeprefix("/")


def _followed(root: Path, path: str) -> str | None:
    ahead = list(PurePosixPath(path).parts[1:])
    done: list[str] = []
    links = 0
    while ahead:
        part = ahead.pop(0)
        if part == "..":
            done = done[:-1]
            continue
        target = link_target(root.joinpath(*done, part))
        if target is None:
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        parts = PurePosixPath(target).parts
        if target.startswith("/"):
            done, parts = [], parts[1:]
        ahead = [*parts, *ahead]
    return "/" + "/".join(done)


def link_target(path: Path) -> str | None:
    """Return what the link *path* says; ``None`` if it is none."""
    try:
        return str(path.readlink())
    except OSError:
        return None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # not for us to look at
