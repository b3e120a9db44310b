"""The kubelet's settings, put together from its files and flags as the kubelet does.

The kubelet reads them at its start only, so that files changed since then are not what it runs
with: :mod:`agent.probes.kubelet.configz` has that, and this is with what it would start next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from agent.errors import DecodeError
from agent.model.kubelet import KubeletSettings
from agent.model.kubelet_keys import MAX_ODD_KEYS, OddKey
from agent.model.snapshot import ProbeIssue
from agent.probes.kubelet.fields import KIND, Document, settings_of
from agent.probes.kubelet.file import UnusableError, configuration, text, under
from agent.probes.kubelet.kubelet_flags import FLAGS, override
from agent.probes.kubelet.kubelet_keys import repeated_keys, unknown_keys
from agent.probes.kubelet.kubelet_start import changed_since
from agent.probes.kubelet.kubelet_unloaded import unloaded
from agent.probes.kubelet.merge import Merge
from agent.probes.kubelet.sources import Sources, find_sources
from agent.probes.sysfs.tree import Root, Tree

MAX_DROP_INS = 64
"""Most files of a directory of drop-ins, its subdirectories included; real ones have a handful."""

MAX_TOTAL_BYTES = 1 << 20
"""Of all files of one kubelet together."""

MAX_ENTRIES = 1024
"""Most names in that directory: it may be any, such as ``/``."""

MAX_FOLDERS = 16
"""Deepest nesting of these subdirectories."""

__all__ = ["FLAGS", "KIND", "read_kubelet_settings"]


def read_kubelet_settings(
    host: Root, procfs: Root, *, history: bool = False
) -> tuple[KubeletSettings | None, tuple[ProbeIssue, ...]]:
    """Return the settings with which the node's kubelet would start, or why they are not known.

    The running kubelet's command line in *procfs* says where its files are; without one, the
    usual places are tried. *host* is where the host's root directory is seen from here.

    Args:
        history: whether to tell too which files were changed since the kubelet's start, and
            which it passes over: a few reads more.
    """
    tree, processes = Tree.of(host), Tree.of(procfs)
    try:
        sources = find_sources(tree, processes)
        settings, files = _settings(tree, sources)
    except UnusableError as error:
        issue = ProbeIssue(probe="kubelet", subject=error.subject, reason=error.reason)
        return None, (issue,)
    if history:
        settings = replace(
            settings,
            changed_since_start=changed_since(tree, processes, sources, files),
            unloaded_drop_ins=unloaded(tree, sources, files),
        )
    return settings, ()


def _settings(host: Tree, sources: Sources) -> tuple[KubeletSettings, tuple[Path, ...]]:
    """Return the settings, and the files that they are from."""
    merge, named, files = Merge(), [], _Files(host)
    if sources.config is not None:
        merge.load(files.read(sources.config), str(sources.config))
        named.append(str(sources.config))
    if sources.drop_ins is not None:
        merge.open_directory()
        drop_ins = _drop_ins(host, sources.drop_ins)
        for path in drop_ins:
            merge.patch(files.read(path, is_drop_in=True), str(path))
        merge.close_directory()
        if drop_ins:
            word = "drop-in" if len(drop_ins) == 1 else "drop-ins"
            named.append(f"{len(drop_ins)} {word} in {sources.drop_ins.rstrip('/')}")
    merge.settle()
    try:
        if override(merge, sources.flags) or not named:
            named.append(sources.told_by)
    except DecodeError as error:
        raise UnusableError(error.path, error.problem) from None
    settings = _decoded(merge, sources, " + ".join(named))
    return replace(settings, odd_keys=files.odd_keys(merge.overridden)), tuple(files.paths)


class _Files:
    """Reads the files of one kubelet, as long as they are not too large together."""

    def __init__(self, host: Tree) -> None:
        self.paths: list[Path] = []
        self._host = host
        self._odd: list[OddKey] = []
        self._left = MAX_TOTAL_BYTES

    def read(self, path: Path, *, is_drop_in: bool = False) -> Document:
        """Return the KubeletConfiguration in a file."""
        written = text(self._host, path)
        self._left -= len(written)
        if self._left < 0:
            reason = f"larger than {MAX_TOTAL_BYTES >> 20} MiB together with the files before it"
            raise UnusableError(str(path), reason)
        self.paths.append(path)
        found = configuration(self._host, path)
        repeated = list(islice(repeated_keys(written, str(path)), MAX_ODD_KEYS + 1))
        if is_drop_in and repeated:
            raise UnusableError(str(path), f"{repeated[0].path} is stated twice in this drop-in")
        unknown = unknown_keys(found, str(path), is_drop_in=is_drop_in)
        self._odd += (*repeated, *islice(unknown, MAX_ODD_KEYS + 1))
        return found

    def odd_keys(self, overridden: set[tuple[str, str]]) -> tuple[OddKey, ...] | None:
        """Return the odd keys of all files; ``None`` where they are too many to keep."""
        if len(self._odd) > MAX_ODD_KEYS:
            return None
        return tuple(
            replace(odd, is_overridden=not odd.within and (odd.file, odd.key) in overridden)
            for odd in self._odd
        )


def _decoded(merge: Merge, sources: Sources, source: str) -> KubeletSettings:
    document, origins = merge.finish()
    try:
        settings = settings_of(document, source)
    except DecodeError as error:
        place = origins.get(error.path) or origins.get(error.path.split("[")[0], source)
        raise UnusableError(place, str(error)) from None
    return replace(
        settings,
        origins=origins,
        embedded_in=sources.embedded_in,
        root_directory=sources.root_directory,
        version=sources.version,
    )


def _drop_ins(host: Tree, directory: str) -> Sequence[Path]:
    """Return the drop-ins of *directory*, in the order in which they are merged.

    As Go's ``filepath.WalkDir``: it goes by name, into folders and through no link to one. A
    directory that is a link itself, written without a slash at its end, is no folder either, and
    nothing in it is loaded.
    """
    path = Path(directory)
    try:
        is_walked = directory.endswith("/") or host.is_folder(under(path))
    except OSError as error:
        raise UnusableError(str(path), error.strerror or str(error)) from None
    if not is_walked:
        return [path] if _is_drop_in(path) else []
    found = list(islice(_walk(host, path, 0), MAX_ENTRIES + 1))
    drop_ins = [entry for entry, is_folder in found if not is_folder and _is_drop_in(entry)]
    if len(found) > MAX_ENTRIES or len(drop_ins) > MAX_DROP_INS:
        raise UnusableError(str(path), f"more than {MAX_DROP_INS} drop-ins or {MAX_ENTRIES} names")
    return drop_ins


def _is_drop_in(path: Path) -> bool:
    return path.name.endswith(".conf")


def _walk(host: Tree, directory: Path, depth: int) -> Iterator[tuple[Path, bool]]:
    """Yield what is below *directory*, and whether it is a folder."""
    if depth > MAX_FOLDERS:
        raise UnusableError(str(directory), f"nested more than {MAX_FOLDERS} deep")
    try:
        for name in host.names(under(directory)):
            path = directory / name
            is_folder = host.is_folder(under(path))
            yield path, is_folder
            if is_folder:
                yield from _walk(host, path, depth + 1)
    except OSError as error:
        raise UnusableError(str(directory), error.strerror or str(error)) from None
