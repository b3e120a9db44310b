"""The kubelet's settings, merged from its files and flags like the kubelet does.

The kubelet reads files only at its start, so later changes are not in force:
:mod:`nodetopo.probes.kubelet.api` has the running settings, this module the settings of the next
start.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from nodetopo.errors import DecodeError
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_keys import MAX_ODD_KEYS, OddKey
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.kubelet.fields import KIND, Document, settings_of
from nodetopo.probes.kubelet.file import (
    UnusableError,
    below_root,
    read_configuration,
    read_text,
    repeated_keys,
    unknown_keys,
)
from nodetopo.probes.kubelet.merge import FLAGS, Merge, override
from nodetopo.probes.kubelet.sources import USUAL_PLACES, Sources, find_sources
from nodetopo.probes.process_table import started_at
from nodetopo.probes.sysfs.tree import Root, Tree

__all__ = ["FLAGS", "KIND", "read_kubelet_settings"]

MAX_DROP_INS = 64
"""Most files of a directory of drop-ins, its subdirectories included; real ones have a handful."""

MAX_TOTAL_BYTES = 1 << 20
"""Of all files of one kubelet together."""

MAX_ENTRIES = 1024
"""Most names in that directory, which can be any, such as ``/``."""

MAX_FOLDERS = 16
"""Deepest nesting of these subdirectories."""

SUFFIXES = (".conf", ".yaml", ".yml", ".json")
"""Suffixes of files that are meant to be loaded; ``x.conf.bak`` and ``x.conf~`` are not."""

MAX_LOOKED_AT = 64
"""Most files opened to check whether they hold a KubeletConfiguration."""

MARGIN_S = 2.0
"""Least age difference: the kernel reports the boot time in whole seconds (``btime``, kernel
fs/proc/stat.c).
"""


def read_kubelet_settings(
    host: Root, procfs: Root, *, history: bool = False
) -> tuple[KubeletSettings | None, tuple[ProbeIssue, ...]]:
    """Return the settings with which the node's kubelet would start, or issues.

    The running kubelet's command line in *procfs* locates its files; without one, the usual paths
    are tried. *host* is where the host's root directory is mounted.

    Args:
        history: whether to also detect files changed since the kubelet's start, and files that it
            does not load, with a few more reads.
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

    source = " + ".join(named)
    document, origins = merge.finish()
    try:
        settings = settings_of(document, source)
    except DecodeError as error:
        place = origins.get(error.path) or origins.get(error.path.split("[")[0], source)
        raise UnusableError(place, str(error)) from None
    settings = replace(
        settings,
        origins=origins,
        embedded_in=sources.embedded_in,
        root_directory=sources.root_directory,
        version=sources.version,
        odd_keys=files.odd_keys(merge.overridden),
    )
    return settings, tuple(files.paths)


class _Files:
    """Reads the files of one kubelet, up to a total size."""

    def __init__(self, host: Tree) -> None:
        self.paths: list[Path] = []
        self._host = host
        self._odd: list[OddKey] = []
        self._left = MAX_TOTAL_BYTES

    def read(self, path: Path, *, is_drop_in: bool = False) -> Document:
        """Return the KubeletConfiguration in a file."""
        text = read_text(self._host, path)
        self._left -= len(text)
        if self._left < 0:
            reason = f"larger than {MAX_TOTAL_BYTES >> 20} MiB together with the files before it"
            raise UnusableError(str(path), reason)
        self.paths.append(path)
        configuration = read_configuration(self._host, path)
        repeated = list(islice(repeated_keys(text, str(path)), MAX_ODD_KEYS + 1))
        if is_drop_in and repeated:
            raise UnusableError(str(path), f"{repeated[0].path} is stated twice in this drop-in")
        unknown = unknown_keys(configuration, str(path), is_drop_in=is_drop_in)
        self._odd += (*repeated, *islice(unknown, MAX_ODD_KEYS + 1))
        return configuration

    def odd_keys(self, overridden: set[tuple[str, str]]) -> tuple[OddKey, ...] | None:
        """Return the odd keys of all files; None where they are too many to keep."""
        if len(self._odd) > MAX_ODD_KEYS:
            return None
        return tuple(
            replace(odd, is_overridden=not odd.within and (odd.file, odd.key) in overridden)
            for odd in self._odd
        )


def _drop_ins(host: Tree, directory: str) -> Sequence[Path]:
    """Return the drop-ins of *directory*, in merge order.

    Like Go's ``filepath.WalkDir``: sorted by name, into folders but not through links to folders.
    If *directory* itself is a link without a trailing slash, nothing in it is loaded.
    """
    path = Path(directory)
    try:
        is_walked = directory.endswith("/") or host.is_folder(below_root(path))
    except OSError as error:
        raise UnusableError(str(path), error.strerror or str(error)) from None
    entries = [(path, False)]
    if is_walked:
        entries = list(islice(_walk(host, path, 0), MAX_ENTRIES + 1))
    drop_ins = [it for it, is_folder in entries if not is_folder and it.name.endswith(".conf")]
    if len(entries) > MAX_ENTRIES or len(drop_ins) > MAX_DROP_INS:
        raise UnusableError(str(path), f"more than {MAX_DROP_INS} drop-ins or {MAX_ENTRIES} names")
    return drop_ins


def _walk(host: Tree, directory: Path, depth: int) -> Iterator[tuple[Path, bool]]:
    """Yield the entries below *directory*, and whether each is a folder."""
    if depth > MAX_FOLDERS:
        raise UnusableError(str(directory), f"nested more than {MAX_FOLDERS} deep")
    try:
        for name in host.names(below_root(directory)):
            path = directory / name
            is_folder = host.is_folder(below_root(path))
            yield path, is_folder
            if is_folder:
                yield from _walk(host, path, depth + 1)
    except OSError as error:
        raise UnusableError(str(directory), error.strerror or str(error)) from None


def changed_since(
    host: Tree, procfs: Tree, sources: Sources, files: Iterable[Path]
) -> tuple[str, ...] | None:
    """Return the *files* written after the start of the kubelet's process.

    None without a visible process, with an unknown start, or if the kubelet starts later than its
    process, as in k3s, which writes the files in between.
    """
    if sources.pid is None or sources.embedded_in in ("k3s", "microk8s"):
        return None
    started = started_at(procfs.root, sources.pid)
    if started is None:
        return None
    changed = []
    for path in files:
        try:
            if host.modified(below_root(path)) / 1e9 > started + MARGIN_S:
                changed.append(str(path))
        except OSError:  # gone between two reads
            continue
    return tuple(changed)


def unloaded(host: Tree, sources: Sources, loaded: Iterable[Path]) -> tuple[str, ...] | None:
    """Return the unread files with a KubeletConfiguration in directories of drop-ins.

    Either the directory is ``--config-dir``'s, and the name does not end in ``.conf``; or the
    directory is documented but not in a flag. None without a visible process.
    """
    if sources.pid is None:
        return None
    folders = {Path(place.drop_ins) for place in USUAL_PLACES if place.drop_ins}
    if sources.drop_ins is not None:
        folders.add(Path(sources.drop_ins))
    known = set(loaded)
    missed: list[Path] = []
    for folder in sorted(folders):
        try:
            names = host.names(below_root(folder))
        except OSError:
            continue
        paths = (folder / name for name in names if name.endswith(SUFFIXES))
        missed += [path for path in paths if path not in known]
    configurations = []
    for path in missed[:MAX_LOOKED_AT]:
        try:
            if KIND in read_text(host, path):
                configurations.append(str(path))
        except UnusableError:
            continue
    return tuple(configurations)
