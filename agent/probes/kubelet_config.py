"""The kubelet's settings, put together from its files and flags as the kubelet does.

Order of precedence, lowest first: the kubelet's defaults, the file of ``--config``, the
drop-ins of ``--config-dir`` (``*.conf``, walked in lexical order, RFC 7386 merge patches onto
the defaulted file, ``null`` brings the default back), then flags (KEP-3983;
``cmd/kubelet/app/server.go``). The kubelet reads them at its start only, so files changed
since then are not what it runs with.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from errno import EISDIR, ENOTSUP
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import ProbeIssue
from agent.probes.kubelet_process import KubeletProcess, running_kubelets
from agent.probes.tree import Root, Tree
from agent.probes.yaml_slips import TRIPPED

MAX_BYTES = 1 << 20
"""Largest file read; real ones are under 10 KiB."""

CONFIG = Path("/var/lib/kubelet/config.yaml")
"""Where kubeadm puts the file, looked at when no kubelet process is seen."""

DROP_INS = Path("/etc/kubernetes/kubelet.conf.d")
"""The drop-in directory of the Kubernetes documentation, same."""

KIND = "KubeletConfiguration"
GROUP = "kubelet.config.k8s.io/"
_Document = dict[str, Any]

# Kubelet v1beta1 SetDefaults_KubeletConfiguration; eviction.DefaultEvictionHard on Linux.
DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "none",
        "topologyManagerScope": "container",
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "10%",
            "nodefs.inodesFree": "5%",
            "imagefs.available": "15%",
            "imagefs.inodesFree": "5%",
        },
    },
)
_TEXTS = {
    "cpu-manager-policy": "cpuManagerPolicy",
    "memory-manager-policy": "memoryManagerPolicy",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "reserved-cpus": "reservedSystemCPUs",
}
_MAPS = {
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "system-reserved": "systemReserved",
    "kube-reserved": "kubeReserved",
    "eviction-hard": "evictionHard",
}
FLAGS = ("config", "config-dir", *_TEXTS, *_MAPS)
"""The kubelet's flags that are read."""


class _Unusable(Exception):  # noqa: N818 - control flow inside this file: becomes an issue
    """A file or flag that cannot be used; carries where and why."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Where the settings of one kubelet are. Paths as the kubelet names them."""

    config: Path | None
    drop_ins: Path | None
    flags: Mapping[str, str]
    pid: int | None = None


def read_kubelet_settings(
    host: Root, procfs: Root
) -> tuple[KubeletSettings | None, tuple[ProbeIssue, ...]]:
    """Return the effective settings of the node's kubelet, or why they are not known.

    The running kubelet's command line in *procfs* says where its files are; without one,
    kubeadm's place is tried. *host* is where the host's root directory is seen from here.
    """
    try:
        tree = Tree.of(host)
        return _settings(tree, _sources(tree, Tree.of(procfs))), ()
    except _Unusable as error:
        return None, (_issue(error.subject, error.reason),)
    except RecursionError:
        return None, (_issue("the kubelet's configuration", "nested too deeply"),)


def _issue(subject: str, reason: str) -> ProbeIssue:
    return ProbeIssue(probe="kubelet", subject=subject, reason=reason)


def _sources(host: Tree, procfs: Tree) -> _Sources:
    kubelets = running_kubelets(procfs, FLAGS)
    running = [_named_by(kubelet) for kubelet in kubelets]
    if len(running) > 1:  # several nodes on one machine: those that this host root can be
        running = [it for it in running if it.config and _is_there(host, it.config)]
    if len(running) == 1:
        return running[0]
    if running:
        pids = ", ".join(str(sources.pid) for sources in running)
        raise _Unusable(str(procfs.root), f"several kubelets run here: pids {pids}")
    if not _is_there(host, CONFIG):
        raise _Unusable(str(CONFIG), "no such file, and no kubelet process was seen")
    return _Sources(
        config=CONFIG,
        drop_ins=DROP_INS if _is_there(host, DROP_INS) else None,
        flags={},
    )


def _named_by(kubelet: KubeletProcess) -> _Sources:
    return _Sources(
        config=_absolute(kubelet.flags.get("config"), kubelet.directory),
        drop_ins=_absolute(kubelet.flags.get("config-dir"), kubelet.directory),
        flags=kubelet.flags,
        pid=kubelet.pid,
    )


def _absolute(path: str | None, directory: Path | None) -> Path | None:
    if not path or path.startswith("/"):
        return Path(path) if path else None
    if directory is None:
        raise _Unusable(path, "a relative path, and the kubelet's directory is not known")
    return directory / path


def _is_there(host: Tree, path: Path) -> bool:
    try:
        with suppress(ValueError):  # a link out of the host root, which may still be followed
            host.real(_under(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _Unusable(str(path), error.strerror or str(error)) from None
    return True


def _settings(host: Tree, sources: _Sources) -> KubeletSettings:
    document: _Document = dict(DEFAULTS)
    named = []
    if sources.config is not None:
        document = _defaulted(_read(host, sources.config))
        named.append(str(sources.config))
    drop_ins = tuple(_drop_ins(host, sources.drop_ins)) if sources.drop_ins else ()
    for path in drop_ins:
        document = _merged(document, _read(host, path))
    if drop_ins:
        named.append(f"{len(drop_ins)} drop-ins in {sources.drop_ins}")
    if (overriding := _from_flags(sources.flags)) or not named:
        named.append(f"flags of pid {sources.pid}")
    return _parsed(_defaulted(document | overriding), " + ".join(named))


def _under(path: Path) -> str:
    return path.relative_to("/").as_posix()


def _drop_ins(host: Tree, directory: Path) -> Iterator[Path]:
    """Walk *directory* as Go's WalkDir does: by name, into folders, through no link to one."""
    try:
        names = host.names(_under(directory))
        listed = [(name, host.is_folder(_under(directory / name))) for name in names]
    except OSError as error:
        raise _Unusable(str(directory), error.strerror or str(error)) from None
    for name, is_folder in listed:
        if is_folder:
            yield from _drop_ins(host, directory / name)
        elif name.endswith(".conf"):
            yield directory / name


def _read(host: Tree, path: Path) -> _Document:
    document = _load(str(path), _text(host, path))
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise _Unusable(str(path), f"not a {KIND}")
    if not str(document.get("apiVersion")).startswith(GROUP):
        raise _Unusable(str(path), f"apiVersion is not of {GROUP}")
    return document


def _text(host: Tree, path: Path) -> str:
    name = str(path)
    try:
        raw = host.content(_under(path))
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _Unusable(name, "not UTF-8") from None
    except OSError as error:
        is_other = error.errno in (EISDIR, ENOTSUP)  # a pipe would never end
        reason = "not a regular file" if is_other else error.strerror or str(error)
        raise _Unusable(name, reason) from None
    if len(raw) > MAX_BYTES:
        raise _Unusable(name, f"larger than {MAX_BYTES >> 20} MiB")
    return text


def _load(name: str, text: str) -> Any:
    try:
        return json.loads(text)  # first, as PyYAML rejects JSON that is indented with tabs
    except (ValueError, RecursionError):
        pass
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise _Unusable(name, f"not YAML: {error.problem} in line {line}") from None
    except (yaml.YAMLError, *TRIPPED) as error:
        raise _Unusable(name, f"not YAML: {type(error).__name__}") from None


def _merged(document: Any, patch: Any) -> Any:
    """Apply *patch* as RFC 7386 says: objects merge, ``null`` removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _defaulted(document: _Document) -> _Document:
    # The kubelet takes an empty policy for an absent one.
    stated = {key: value for key, value in document.items() if value not in (None, "")}
    return {**DEFAULTS, **stated}


def _from_flags(flags: Mapping[str, str]) -> _Document:
    texts = {field: flags[name] for name, field in _TEXTS.items() if name in flags}
    maps = {field: _pairs(name, flags[name]) for name, field in _MAPS.items() if name in flags}
    return {**texts, **maps}


def _pairs(name: str, value: str) -> dict[str, str]:
    separator = "<" if name == "eviction-hard" else "="
    pairs = {}
    for item in filter(None, value.split(",")):
        key, found, amount = item.partition(separator)
        if not found:
            raise _Unusable(f"--{name}", f"not a list of key{separator}value: {value!r}")
        pairs[key.strip()] = amount.strip()
    return pairs


def _parsed(document: _Document, source: str) -> KubeletSettings:
    return KubeletSettings(
        source=source,
        cpu_manager_policy=_string(document, "cpuManagerPolicy", source),
        cpu_manager_options=_strings(document, "cpuManagerPolicyOptions", source),
        memory_manager_policy=_string(document, "memoryManagerPolicy", source),
        topology_manager_policy=_string(document, "topologyManagerPolicy", source),
        topology_manager_scope=_string(document, "topologyManagerScope", source),
        topology_manager_options=_strings(document, "topologyManagerPolicyOptions", source),
        reserved_system_cpus=_string(document, "reservedSystemCPUs", source),
        system_reserved=_strings(document, "systemReserved", source),
        kube_reserved=_strings(document, "kubeReserved", source),
        eviction_hard=_strings(document, "evictionHard", source),
    )


def _string(document: _Document, field: str, source: str) -> str | None:
    value = document.get(field)
    if value is None or isinstance(value, str):
        return value
    raise _Unusable(source, f"{field}: expected a text, found {type(value).__name__}")


def _strings(document: _Document, field: str, source: str) -> dict[str, str]:
    value = document.get(field, {})
    if not isinstance(value, dict):
        raise _Unusable(source, f"{field}: expected an object, found {type(value).__name__}")
    for key, item in value.items():
        if not isinstance(item, str):
            raise _Unusable(source, f"{field}.{key}: expected a text")
    return dict(value)
