"""A raw capture without its node's identity, with the same substitutes in all its texts."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml

from nodetopo.formats.yaml import YAML_ERRORS
from nodetopo.model.kubelet_keys import KEYS, MAX_ODD_KEYS, SINCE, Keys, closest, is_empty
from nodetopo.probes.kubelet.config import FLAGS, KIND
from nodetopo.probes.kubelet.fields import READ, Document
from nodetopo.probes.kubelet.process import arguments
from nodetopo.probes.kubelet.sources import MICROK8S
from nodetopo.probes.sysfs.pci_config import CHECKSUM, END, MANAGEMENT_FIELD, READ_ONLY
from nodetopo.tools.capture.archive import Entry
from nodetopo.tools.capture.raw import RawCapture
from nodetopo.tools.capture.scrub import Substitutes, command_line, learn_hosts, scrubbed

_VPD = re.compile(r"sys/.*/vpd")
_PROCESS = re.compile(r"proc/[0-9]+/cmdline")
_MODULES, _COMMAND_LINE = "proc/modules", "proc/cmdline"
_READ = frozenset(map(str.lower, READ))
_LEFT_OUT = "left out"
"""The value of a key whose name alone is read by discovery."""

_COMMON = frozenset((b"PN", b"EC", CHECKSUM.encode()))
"""Part number and engineering changes are the product's, not the unit's (PCI Local Bus
Specification 3.0, appendix I)."""

_PADDING = " \0\t\r\n"


def scrub_raw(raw: RawCapture, hosts: Iterable[str] = ()) -> RawCapture:
    """Return *raw* scrubbed; the node that it replays has the scrubbed snapshot."""
    substitutes = Substitutes()
    learn_hosts(substitutes, hosts)
    substitutes.learn(raw.snapshot)
    cut = tuple(_cut(entry) for entry in raw.entries)
    substitutes.learn_text(raw.nvml)
    for entry in cut:
        substitutes.learn_text((entry.content or b"").decode("latin-1"))
    entries = tuple(_replaced(entry, substitutes) for entry in cut)
    snapshot, done = scrubbed(raw.snapshot, substitutes)
    reports = (
        f"{old.path}: only what discovery reads is kept"
        for old, new in zip(raw.entries, cut, strict=True)
        if old != new
    )
    return replace(
        raw,
        nvml=substitutes.apply(raw.nvml),
        entries=entries,
        snapshot=snapshot,
        left_out=(*map(substitutes.apply, raw.left_out), *done, *reports),
    )


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


def _replaced(entry: Entry, substitutes: Substitutes) -> Entry:
    target = None if entry.target is None else substitutes.apply(entry.target)
    entry = replace(entry, path=substitutes.apply(entry.path), target=target)
    if entry.content is None:
        return entry
    if _VPD.fullmatch(entry.path):
        vpd = scrub_vpd(entry.content, lambda value: substitutes.of("VPD entry", value))
        return replace(entry, content=vpd)
    # Latin-1: any bytes survive, and all identifiers are ASCII.
    text = substitutes.apply(entry.content.decode("latin-1"))
    return replace(entry, content=text.encode("latin-1"))


def _cut(entry: Entry) -> Entry:
    """Return *entry* with only that part of its content which discovery reads."""
    content = entry.content
    if not content:
        return entry
    if entry.path == _COMMAND_LINE:
        content = f"{command_line(content.decode('utf-8', 'replace'))}\n".encode()
    elif entry.path == _MODULES:
        # Only the names: root sees addresses of the kernel there, which are a secret of its boot.
        names = (line.split()[0] for line in content.splitlines() if line.strip())
        content = b"".join(name + b" 0 0 - Live 0x0000000000000000\n" for name in names)
    elif _PROCESS.fullmatch(entry.path):
        content = _kubelet_command(content)
    elif f"/{entry.path}" == str(MICROK8S):  # a file with one flag a line
        lines = content.decode("utf-8", "replace").splitlines()
        content = "".join(f"{line}\n" for line in lines if _is_read(line.strip())).encode()
    elif KIND.encode() in content:
        content = _kubelet_file(content)
    return replace(entry, content=content)


def _kubelet_command(content: bytes) -> bytes:
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
    return "".join(f"{word}\0" for word in kept).encode()


def _is_read(word: str) -> bool:
    """Return whether *word* is a flag that discovery reads."""
    name = word.partition("=")[0].partition(" ")[0].removeprefix("--").replace("_", "-")
    return word.startswith("--") and name in FLAGS


def _kubelet_file(content: bytes) -> bytes:
    """Return a kubelet's configuration file with only the keys that discovery reads."""
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, *YAML_ERRORS):
        return content
    if not isinstance(document, dict):
        return content
    return yaml.safe_dump(_kept_keys(document, KEYS, _READ), sort_keys=False).encode()


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
            kept[key] = value
        elif inner:
            kept[key] = inner
        elif are_few and is_odd and (closest(key, known) or closest(key, KEYS)):
            kept[key] = _LEFT_OUT
    return kept
