"""A raw capture without what identifies its node: the same substitutes in all its texts."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml

from agent.formats.yaml import TRIPPED
from agent.model.kubelet_keys import KEYS, MAX_ODD_KEYS, SINCE, Keys, closest, is_empty
from agent.probes.capture.archive import Entry
from agent.probes.capture.raw import RawCapture
from agent.probes.capture.scrub import Substitutes, command_line, learn_hosts, scrubbed
from agent.probes.kubelet.config import FLAGS, KIND
from agent.probes.kubelet.fields import READ, Document
from agent.probes.kubelet.process import arguments
from agent.probes.kubelet.sources import MICROK8S
from agent.probes.sysfs.pci_config import CHECKSUM, END, MANAGEMENT_FIELD, READ_ONLY

# Vital Product Data without what identifies the unit; the format is that of `pci_vpd`.

_COMMON = frozenset((b"PN", b"EC", CHECKSUM.encode()))
"""Part number and engineering changes are the product's, not the unit's (PCI Local Bus
Specification 3.0, appendix I)."""


_PADDING = " \0\t\r\n"


_END = bytes([END])


def scrub_vpd(vpd: bytes, substitute: Callable[[str], str]) -> bytes:
    """Return *vpd* up to its read-only part, the values in it replaced; the same length each.

    The checksum is left as it was, and so no longer holds. What cannot be read as VPD is
    left out whole.
    """
    at = 0
    while at + 3 <= len(vpd) and vpd[at] & 0x80:
        start = at + 3
        end = start + int.from_bytes(vpd[at + 1 : start], "little")
        if vpd[at] == READ_ONLY:
            fields = b"".join(_fields(vpd[start:end], substitute))
            return vpd[: at + 1] + len(fields).to_bytes(2, "little") + fields + _END
        at = end
    return b""


def _fields(data: bytes, substitute: Callable[[str], str]) -> Iterator[bytes]:
    at = 0
    while at + 3 <= len(data) and at + 3 + data[at + 2] <= len(data):
        end = at + 3 + data[at + 2]
        name, value = data[at : at + 2].upper(), data[at + 3 : end]
        is_kept = name in _COMMON
        yield data[at : at + 3] + (value if is_kept else _value(name, value, substitute))
        at = end


def _value(name: bytes, value: bytes, substitute: Callable[[str], str]) -> bytes:
    text = value.decode("latin-1")
    fields = text.split(":") if name.startswith(b"V") else [text]
    return ":".join(_field(each, substitute) for each in fields).encode("latin-1")


def _field(text: str, substitute: Callable[[str], str]) -> str:
    body = text.strip(_PADDING)
    if not body or body == MANAGEMENT_FIELD:
        return text
    return text.replace(body, substitute(body), 1)


_VPD = re.compile(r"sys/.*/vpd")


_PROCESS = re.compile(r"proc/[0-9]+/cmdline")


_MODULES, _COMMAND_LINE = "proc/modules", "proc/cmdline"


_READ = frozenset(map(str.lower, READ))


_LEFT_OUT = "left out"
"""In place of the value of a key that discovery reads the name of."""


def scrub_raw(raw: RawCapture, hosts: Iterable[str] = ()) -> RawCapture:
    """Return *raw* scrubbed; the node that it plays has the scrubbed snapshot."""
    substitutes = Substitutes()
    learn_hosts(substitutes, hosts)
    substitutes.learn(raw.snapshot)
    cut = tuple(_cut(entry) for entry in raw.entries)
    substitutes.learn_text(raw.nvml)
    for entry in cut:
        substitutes.learn_text(_text(entry.content or b""))
    entries = tuple(_replaced(entry, substitutes) for entry in cut)
    snapshot, done = scrubbed(raw.snapshot, substitutes)
    return replace(
        raw,
        nvml=substitutes.apply(raw.nvml),
        entries=entries,
        snapshot=snapshot,
        left_out=(*map(substitutes.apply, raw.left_out), *done, *_reports(raw.entries, cut)),
    )


def _reports(before: Iterable[Entry], after: Iterable[Entry]) -> Iterator[str]:
    for old, new in zip(before, after, strict=True):
        if old != new:
            yield f"{old.path}: only what discovery reads is kept"


def _replaced(entry: Entry, substitutes: Substitutes) -> Entry:
    target = None if entry.target is None else substitutes.apply(entry.target)
    entry = replace(entry, path=substitutes.apply(entry.path), target=target)
    if entry.content is None:
        return entry
    if _VPD.fullmatch(entry.path):
        vpd = scrub_vpd(entry.content, lambda value: substitutes.of("VPD entry", value))
        return replace(entry, content=vpd)
    content = substitutes.apply(_text(entry.content)).encode("latin-1")
    return replace(entry, content=content)


def _text(content: bytes) -> str:
    return content.decode("latin-1")  # any bytes survive; all identifiers are ASCII


def _cut(entry: Entry) -> Entry:
    """Return *entry* with only that part of its content which discovery reads."""
    content = entry.content
    if not content:
        return entry
    cut: Callable[[bytes], bytes] | None = None
    if entry.path == _COMMAND_LINE:
        cut = _kernel
    elif entry.path == _MODULES:
        cut = _modules
    elif _PROCESS.fullmatch(entry.path):
        cut = _kubelet_flags
    elif f"/{entry.path}" == str(MICROK8S):
        cut = _kubelet_lines
    elif KIND.encode() in content:
        cut = _kubelet_file
    return entry if cut is None else replace(entry, content=cut(content))


def _kernel(content: bytes) -> bytes:
    return f"{command_line(content.decode('utf-8', 'replace'))}\n".encode()


def _modules(content: bytes) -> bytes:
    """Keep the names; root sees addresses of the kernel there, which is a secret of its boot."""
    names = (line.split()[0] for line in content.splitlines() if line.strip())
    return b"".join(name + b" 0 0 - Live 0x0000000000000000\n" for name in names)


def _kubelet_flags(content: bytes) -> bytes:
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


def _kubelet_lines(content: bytes) -> bytes:
    """Keep the flags that are read of a file with one flag a line."""
    lines = content.decode("utf-8", "replace").splitlines()
    return "".join(f"{line}\n" for line in lines if _is_read(line.strip())).encode()


def _kubelet_file(content: bytes) -> bytes:
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, *TRIPPED):
        return content
    if not isinstance(document, dict):
        return content
    return yaml.safe_dump(_told(document, KEYS, _READ), sort_keys=False).encode()


def _told(document: Mapping[Any, Any], known: Keys, read: Collection[str] = ()) -> Document:
    """Return what is *read*, and the names of the keys that a kubelet may pass over.

    Only those that are near to one that it knows: what any other tells nobody knows. And none
    where they are more than a snapshot has.
    """
    kept: Document = {}
    are_few = len(document) <= len(KEYS) + MAX_ODD_KEYS
    for key, value in document.items():
        if not isinstance(key, str):
            continue
        inner = _told(value, known[key]) if known.get(key) and isinstance(value, dict) else {}
        is_odd = key not in known or (key in SINCE and not is_empty(value))
        if key.lower() in read:
            kept[key] = value
        elif inner:
            kept[key] = inner
        elif are_few and is_odd and (closest(key, known) or closest(key, KEYS)):
            kept[key] = _LEFT_OUT
    return kept
