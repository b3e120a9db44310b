"""CRI-O's configuration, as far as GPUs depend on it (CRI-O docs/crio.conf.5.md)."""

from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import PurePosixPath
from typing import Any

from agent.model.host import RuntimeConfig
from agent.probes.host.host_containerd import NVIDIA_PROGRAM, load_toml, merge
from agent.probes.host.runtime_limits import limits_of_words
from agent.probes.sysfs.files import Files

NAME = "crio"
FILE = "etc/crio/crio.conf"
DROP_INS = "etc/crio/crio.conf.d"

_HOOKS = (
    "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
"""NVIDIA's hook, by which the default runtime does what NVIDIA's runtime does."""

_MAX_FILES = 64


def read_crio(files: Files, path: str = FILE, drop_ins: str = DROP_INS) -> RuntimeConfig | None:
    """Return what the file and all drop-ins say; ``None`` where there is none of them.

    CDI is always on: CRI-O 1.23 began with it, and has no switch.
    """
    documents = tuple(_documents(files, path, drop_ins))
    if not documents:
        return None
    empty: Mapping[str, Any] = {}
    crio = reduce(merge, documents, empty).get("crio")
    runtime = crio.get("runtime") if isinstance(crio, dict) else None
    settings = runtime if isinstance(runtime, dict) else {}
    default, words = settings.get("default_runtime"), settings.get("default_ulimits")
    limits = limits_of_words(words if isinstance(words, list) else ())
    name = default if isinstance(default, str) and default else None
    return RuntimeConfig(
        name=NAME,
        path=f"/{path}",
        cdi=True,
        default_runtime=name,
        nvidia_runtimes=tuple(sorted(_nvidia(files, settings, name))),
        memlock_bytes=limits.memlock_bytes,
        open_files=limits.open_files,
    )


def _documents(files: Files, path: str, drop_ins: str) -> Iterator[Mapping[str, Any]]:
    names = [f"{drop_ins}/{name}" for name in files.names(drop_ins) or ()]
    for place in (path, *names[:_MAX_FILES]):
        document = load_toml(files, place)
        if document is not None:
            yield document


def _nvidia(files: Files, settings: Mapping[str, Any], default: str | None) -> Iterator[str]:
    if any(files.content(hook) is not None for hook in _HOOKS):
        yield default or "the default runtime"
    runtimes = settings.get("runtimes")
    for name, runtime in runtimes.items() if isinstance(runtimes, dict) else ():
        program = runtime.get("runtime_path") if isinstance(runtime, dict) else None
        # Without a path CRI-O looks for a program of the runtime's name.
        if PurePosixPath(str(program or name)).name.startswith(NVIDIA_PROGRAM):
            yield name
