"""Specifications of the Container Device Interface on the host (CNCF CDI SPEC.md 1.1.0)."""

from collections.abc import Iterable

from nodetopo.formats import document as documents
from nodetopo.formats.fields import mappings, text
from nodetopo.model.cdi import DIRECTORIES, CdiSpec, directory
from nodetopo.model.host import ContainerToolkit, RuntimeConfig
from nodetopo.probes.host.paths import HostPaths
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import FOLDER

_RUN = ("run/", "var/run/")
"""A directory with two names on most systems; in a container with the host's files below another
directory, the link between them can be broken.
"""

_SUFFIXES = (".json", ".yaml")
"""Of the files that runtimes read (container-device-interface pkg/cdi/spec-dirs.go)."""

_MAX_SPECS = 256
_MAX_DIRECTORIES = 16


def specs_of_programs(
    files: Files,
    paths: HostPaths,
    runtimes: Iterable[RuntimeConfig] | None,
    toolkit: ContainerToolkit | None,
) -> tuple[CdiSpec, ...] | None:
    """Return the specifications in the directories of runtimes and toolkit, as :func:`cdi_specs`.

    None also where a runtime's own directories cannot be seen, whatever lies in the usual ones.
    """
    for config in runtimes or ():
        if config.cdi_dirs and all(paths.exists(path) is None for path in config.cdi_dirs):
            return None
    return cdi_specs(files, paths, configured_directories(runtimes, toolkit))


def configured_directories(
    runtimes: Iterable[RuntimeConfig] | None, toolkit: ContainerToolkit | None
) -> tuple[str, ...]:
    """Return the directories of specifications that runtimes and toolkit look into."""
    configs = [*(runtimes or ()), *((toolkit,) if toolkit else ())]
    stated = (path for config in configs for path in config.cdi_dirs or ())
    return tuple(dict.fromkeys((*DIRECTORIES, *stated)))


def cdi_specs(
    files: Files, paths: HostPaths, directories: Iterable[str] = DIRECTORIES
) -> tuple[CdiSpec, ...] | None:
    """Return the specifications by path; None if none of their directories is visible.

    A host with visible ``/etc`` and ``/run`` but without such a directory has no specifications.

    Args:
        files: the host's files.
        paths: look up the files named in the specifications.
        directories: of specifications.
    """
    named = [_seen(files, path) for path in tuple(directories)[:_MAX_DIRECTORIES]]
    places = sorted({place for place in named if place is not None})
    if not places:
        has_etc = "os-release" in (files.names("etc") or ())
        return () if has_etc and files.names("run") is not None else None
    specs = [
        f"{place}/{name}"
        for place in places
        for name in files.names(place) or ()
        if name.endswith(_SUFFIXES) and files.status(f"{place}/{name}") != FOLDER
    ]
    return tuple(_spec(files, path, paths) for path in specs[:_MAX_SPECS])


def _seen(files: Files, path: str) -> str | None:
    """Return the *path* of a directory relative to the root; None where it is not there."""
    place = directory(path).lstrip("/")
    names = [place]
    if place.startswith(_RUN[0]):
        names.append(_RUN[1] + place.removeprefix(_RUN[0]))
    return next((name for name in names if files.names(name) is not None), None)


def _spec(files: Files, path: str, paths: HostPaths) -> CdiSpec:
    """Return a specification; only its path where the file cannot be read, with an issue."""
    content = files.text(path)
    if content is None:
        return CdiSpec(path=f"/{path}")
    from nodetopo.formats import cdi  # noqa: PLC0415 - many hosts have no specification

    value = None
    try:
        value = documents.load(content)
        document = cdi.read(value)
    except ValueError as error:
        files.report(path, f"CDI ignores it: {error}")
        names = (text(device, "name") for device in mappings(value, "devices"))
        return CdiSpec(
            path=f"/{path}",
            kind=text(value, "kind"),
            devices=tuple(name for name in names if name),
            error=str(error),
        )
    faults, unseen = cdi.faults(document, paths)
    return CdiSpec(
        path=f"/{path}",
        kind=document.kind,
        devices=tuple(document.devices),
        driver_version=document.driver_version,
        faults=faults,
        unseen=unseen,
    )
