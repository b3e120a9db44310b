"""A raw capture without its node's identity, with the same substitutes in all its texts.

Each file goes through the step that :data:`_STEPS` names for its path. A file without a step, or
whose step cannot read it, is left out, and the capture says so.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import yaml
from msgspec.structs import replace

from nodetopo.formats.document import MAX_KUBELET_NODES, load
from nodetopo.formats.yaml import KubernetesLoader
from nodetopo.model.kubelet_keys import KEYS, MAX_ODD_KEYS, SINCE, Keys, closest, is_empty
from nodetopo.probes.kubelet.config import FLAGS, KIND
from nodetopo.probes.kubelet.fields import READ, Document
from nodetopo.probes.kubelet.process import arguments
from nodetopo.probes.kubelet.sources import MICROK8S
from nodetopo.probes.sysfs.pci_config import CHECKSUM, END, MANAGEMENT_FIELD, READ_ONLY
from nodetopo.tools.capture.archive import Entry
from nodetopo.tools.capture.fields import Scrub, command_line, device_name
from nodetopo.tools.capture.raw import RawCapture
from nodetopo.tools.capture.scrub import learn_hosts, scrubbed
from nodetopo.tools.capture.substitutes import Substitutes

_READ = frozenset(map(str.lower, READ))
_LEFT_OUT = "left out"
"""The value of a key whose name alone is read by discovery."""

_COMMON = frozenset((b"PN", b"EC", CHECKSUM.encode()))
"""Part number and engineering changes are the product's, not the unit's (PCI Local Bus
Specification 3.0, appendix I)."""

_PADDING = " \0\t\r\n"

_KERNEL_FILES = re.compile(
    r"sys/(?:.*/)?(?:"
    r"class|config|device|vendor|subsystem_(?:device|vendor)|numa_node|local_cpulist|sriov_numvfs"
    r"|(?:current|max)_link_(?:speed|width)|enable|revision|uevent_seqnum"
    r"|lid|sm_lid|link_layer|phys_state|rate|state|gids/[0-9]+|types/[0-9]+"
    r"|(?:hw_)?counters/[a-z0-9_]+|board_id|fw_ver|hca_type|node_guid|sys_image_guid|node_type"
    r"|ibdev|port|sfnum|dev|dev_id|dev_port|mtu|type|mode|operstate|address|phys_port_name|speed"
    r"|online|offline|possible|present|isolated|kernel_max|has_cpu|has_memory|has_normal_memory"
    r"|cpulist|distance|meminfo|(?:free|nr|surplus)_hugepages|id|level|size|shared_cpu_list"
    r"|(?:cluster|core|die|package)_(?:id|cpus_list)|(?:core|thread)_siblings_list"
    r"|physical_package_id|active|control|enabled|version|netns_mode|product_name"
    r"|affected_cpus|related_cpus|scaling_(?:governor|driver)|energy_performance_preference"
    r"|latency|disable|name|driver"
    r")"
    r"|proc/(?:cpuinfo|meminfo|devices|driver/nvidia/(?:version|params|gpus/[^/]+/[a-z_]+)"
    r"|sys/(?:kernel|vm|net)/[a-z0-9_/]+)"
)
"""Files of the kernel and of its drivers that discovery reads; identifiers in them are replaced."""

_NETWORK = re.compile(r"(?<=/net/)[^/]+")
"""The name of an interface in a path below ``/sys``."""

_NVML = re.compile(r"nvml\w+ (?:[\w:.-]+ )*= -?[0-9]+(?: .*)?|#.*|")
"""A line of ``nvml.txt``."""


_Step: TypeAlias = Callable[[bytes, Scrub], bytes]
"""Returns that part of a file's content which discovery reads, with substitutes; raises ValueError
if it cannot read the file."""


class _Dumper(yaml.SafeDumper):
    """Quotes texts that the kubelet's reader would take for another type."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        readings = KubernetesLoader.yaml_implicit_resolvers.get(data[:1], [])
        style = '"' if any(pattern.match(data) for _tag, pattern in readings) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def scrub_raw(raw: RawCapture, hosts: Iterable[str] = ()) -> RawCapture:
    """Return *raw* scrubbed; the node that it replays has the scrubbed snapshot."""
    substitutes = Substitutes()
    learn_hosts(substitutes, hosts)
    scrub = Scrub(substitutes)
    for entry in raw.entries:
        for name in _NETWORK.findall(entry.path):
            device_name(scrub, None, name)
    snapshot, done = scrubbed(raw.snapshot, substitutes)
    entries, reports = [], []
    for entry in raw.entries:
        path, target = _moved(entry, scrub)
        content = entry.content
        if before := entry.content:
            try:
                step = _step(entry.path)
                content = step(before, scrub)
            except ValueError as error:
                reports.append(f"{path}: left out: {error}")
                continue
            if step is not _plain and content != _plain(before, scrub):
                reports.append(f"{path}: only what discovery reads is kept")
        entries.append(Entry(path=path, content=content, target=target))
    lines = raw.nvml.split("\n")
    known = [line for line in lines if _NVML.fullmatch(line)]
    if len(known) < len(lines):
        reports.append(f"nvml.txt: {len(lines) - len(known)} lines that are no answers left out")
    return replace(
        raw,
        nvml=scrub.plain("\n".join(known)),
        entries=tuple(entries),
        snapshot=snapshot,
        left_out=(*map(scrub.words.kept, raw.left_out), *done, *reports),
    )


def _moved(entry: Entry, scrub: Scrub) -> tuple[str, str | None]:
    """Return path and target of *entry*, as the paths of the snapshot are rewritten."""
    if entry.path.startswith(("sys/", "proc/")):
        path, target = (
            scrub.plain(_NETWORK.sub(lambda match: device_name(scrub, None, match[0]), text))
            for text in (entry.path, entry.target or "")
        )
        return path, target or None
    path = scrub.place(f"/{entry.path}")[1:]
    if entry.target is None:
        return path, None
    leads = posixpath.normpath(posixpath.join("/", posixpath.dirname(entry.path), entry.target))
    target, place = entry.target, scrub.place(leads)
    if place != leads:
        target = posixpath.relpath(place, posixpath.join("/", posixpath.dirname(path)))
    return path, scrub.plain(target)


def _step(path: str) -> _Step:
    for pattern, step in _STEPS:
        if re.fullmatch(pattern, path):
            return step
    raise ValueError("no file that discovery is known to read")


def _plain(content: bytes, scrub: Scrub) -> bytes:
    # Latin-1: any bytes survive, and all identifiers are ASCII.
    return scrub.plain(content.decode("latin-1")).encode("latin-1")


def _kernel_parameters(content: bytes, scrub: Scrub) -> bytes:
    return scrub.plain(f"{command_line(content.decode('utf-8', 'replace'))}\n").encode()


def _device(content: bytes, scrub: Scrub) -> bytes:
    return f"{device_name(scrub, None, content.decode('latin-1').strip())}\n".encode()


def _modules(content: bytes, _scrub: Scrub) -> bytes:
    """Return only names: root sees addresses of the kernel there, a secret of its boot."""
    names = (line.split()[0] for line in content.splitlines() if line.strip())
    return b"".join(name + b" 0 0 - Live 0x0000000000000000\n" for name in names)


def _vpd(content: bytes, scrub: Scrub) -> bytes:
    return scrub_vpd(content, lambda value: scrub.substitutes.of("VPD entry", value))


def scrub_vpd(vpd: bytes, substitute: Callable[[str], str]) -> bytes:
    """Return *vpd* up to its read-only part, its values replaced by ones of the same length.

    The format is described in :mod:`nodetopo.probes.sysfs.pci_config`. The checksum is unchanged,
    and thus wrong. Unreadable parts are left out.
    """
    at = 0
    while at + 3 <= len(vpd) and vpd[at] & 0x80:
        start = at + 3
        end = start + int.from_bytes(vpd[at + 1 : start], "little")
        if vpd[at] == READ_ONLY:
            fields = b"".join(_vpd_fields(vpd[start:end], substitute))
            return vpd[: at + 1] + len(fields).to_bytes(2, "little") + fields + bytes([END])
        at = end
    return b""


def _vpd_fields(data: bytes, substitute: Callable[[str], str]) -> Iterator[bytes]:
    at = 0
    while at + 3 <= len(data) and at + 3 + data[at + 2] <= len(data):
        end = at + 3 + data[at + 2]
        name, value = data[at : at + 2].upper(), data[at + 3 : end]
        if name not in _COMMON:
            text = value.decode("latin-1")
            parts = text.split(":") if name.startswith(b"V") else [text]
            for position, part in enumerate(parts):
                body = part.strip(_PADDING)
                if body and body != MANAGEMENT_FIELD:
                    parts[position] = part.replace(body, substitute(body), 1)
            value = ":".join(parts).encode("latin-1")
        yield data[at : at + 3] + value
        at = end


def _kubelet_command(content: bytes, scrub: Scrub) -> bytes:
    """Return a kubelet's command line with only the flags that discovery reads."""
    words = arguments(content)
    kept, takes_next = [words[0]], False
    for word in words[1:]:
        if takes_next and not word.startswith("--"):
            kept.append(word)
        takes_next = False
        if _is_read(word):
            kept.append(word)
            takes_next = "=" not in word
    return "".join(f"{scrub.place(word)}\0" for word in kept).encode()


def _flags_by_line(content: bytes, scrub: Scrub) -> bytes:
    lines = content.decode("utf-8", "replace").splitlines()
    return "".join(f"{scrub.place(line)}\n" for line in lines if _is_read(line.strip())).encode()


def _is_read(word: str) -> bool:
    """Return whether *word* is a flag that discovery reads."""
    name = word.partition("=")[0].partition(" ")[0].removeprefix("--").replace("_", "-")
    return word.startswith("--") and name in FLAGS


def _kubelet_file(content: bytes, scrub: Scrub) -> bytes:
    """Return a kubelet's configuration file with only the keys that discovery reads."""
    try:
        document = load(content.decode("utf-8"), MAX_KUBELET_NODES, may_repeat=True)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except (ValueError, RecursionError):  # its message can have a part of the file
        raise ValueError("not YAML or JSON that discovery reads") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError(f"not a {KIND}")
    kept = _kept_keys(document, KEYS, _READ)
    return _plain(yaml.dump(kept, Dumper=_Dumper, sort_keys=False).encode(), scrub)


def _kept_keys(document: Mapping[Any, Any], known: Keys, read: Collection[str] = ()) -> Document:
    """Return the keys in *read*, and the names of keys that a kubelet can ignore.

    The latter only if similar to a known key: any other name could contain a secret. None are
    returned beyond a snapshot's limit.
    """
    kept: Document = {}
    are_few = len(document) <= len(KEYS) + MAX_ODD_KEYS
    for key, value in document.items():
        if not isinstance(key, str):
            continue
        inner = _kept_keys(value, known[key]) if known.get(key) and isinstance(value, dict) else {}
        is_odd = key not in known or (key in SINCE and not is_empty(value))
        if key.lower() in read:
            kept[key] = _known_parts(value, known.get(key) or {})
        elif inner:
            kept[key] = inner
        elif are_few and is_odd and (closest(key, known) or closest(key, KEYS)):
            kept[key] = _LEFT_OUT
    return kept


def _known_parts(value: Any, known: Keys) -> Any:
    """Return *value*, of its objects only the *known* keys; all where none are declared."""
    if isinstance(value, list):
        return [_known_parts(item, known) for item in value]
    if isinstance(value, dict) and known:
        return _kept_keys(value, known, frozenset(map(str.lower, known)))
    return value


_STEPS: tuple[tuple[str | re.Pattern[str], _Step], ...] = (
    (r"sys/.*/vpd", _vpd),
    (r"proc/cmdline", _kernel_parameters),
    (r"proc/modules", _modules),
    (r"proc/[0-9]+/cmdline", _kubelet_command),
    (r"sys/.*/ndevs/[0-9]+", _device),
    (_KERNEL_FILES, _plain),
    (re.escape(str(MICROK8S)[1:]), _flags_by_line),
    (r"(?!sys/|proc/).*", _kubelet_file),
)
"""Path → its step, the first that matches."""
