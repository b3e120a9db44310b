"""Files that look like settings of the kubelet, and that it never loads."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.probes.kubelet.fields import KIND
from agent.probes.kubelet.file import UnusableError, text, under
from agent.probes.kubelet.sources import PLACES, Sources
from agent.probes.sysfs.tree import Tree

SUFFIXES = (".conf", ".yaml", ".yml", ".json")
"""Ends of the names that are meant to be loaded; ``x.conf.bak`` and ``x.conf~`` are not."""

MAX_LOOKED_AT = 64
"""Most files that are opened to see what they are."""


def unloaded(host: Tree, sources: Sources, loaded: Iterable[Path]) -> tuple[str, ...] | None:
    """Return the files with a KubeletConfiguration in directories of drop-ins that go unread.

    Either the directory is the one of ``--config-dir``, and the name does not end in ``.conf``;
    or it is one that documentation names, and no flag does. ``None`` where no process is seen,
    whose flags would tell.
    """
    if sources.pid is None:
        return None
    known = set(loaded)
    folders = {Path(place.drop_ins) for place in PLACES if place.drop_ins}
    if sources.drop_ins is not None:
        folders.add(Path(sources.drop_ins))
    found = [path for folder in sorted(folders) for path in _files(host, folder)]
    missed = [path for path in found if path not in known][:MAX_LOOKED_AT]
    return tuple(str(path) for path in missed if _is_configuration(host, path))


def _files(host: Tree, folder: Path) -> Iterator[Path]:
    try:
        names = host.names(under(folder))
    except OSError:
        return
    yield from (folder / name for name in names if name.endswith(SUFFIXES))


def _is_configuration(host: Tree, path: Path) -> bool:
    try:
        return KIND in text(host, path)
    except UnusableError:
        return False
