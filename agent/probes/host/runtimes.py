"""Configurations of the container runtimes of the host."""

from collections.abc import Iterable, Iterator

from agent.model.host import RuntimeConfig
from agent.probes.host import host_containerd, host_crio
from agent.probes.host.processes import Process
from agent.probes.sysfs.files import Files

_CONFIG_FLAGS = ("-c", "--config")
_OF_DOCKER = "docker"
"""In the path of the configuration of a containerd that Docker started for itself."""


def runtime_configs(
    files: Files, processes: Iterable[Process] | None
) -> tuple[RuntimeConfig, ...] | None:
    """Return the configurations, containerd's first; ``None`` where no file of any is there.

    Those that running programs name by their flags, and else the files at the usual places.
    """
    stated = tuple(_stated(processes or ()))
    paths = dict.fromkeys(stated or host_containerd.PATHS)
    found = [host_containerd.read_containerd(files, path) for path in paths]
    found.append(host_crio.read_crio(files))
    return tuple(config for config in found if config is not None) or None


def _stated(processes: Iterable[Process]) -> Iterator[str]:
    for process in processes:
        if process.name != host_containerd.NAME:
            continue
        path = _flag(process.arguments) or f"/{host_containerd.PATHS[0]}"
        if path.startswith("/") and _OF_DOCKER not in path:
            yield host_containerd.below_root(path)


def _flag(words: tuple[str, ...]) -> str | None:
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in _CONFIG_FLAGS:
            return value if equals else "".join(words[position + 1 : position + 2])
    return None
