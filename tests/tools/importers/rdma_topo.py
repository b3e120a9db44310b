"""A dump of rdma-core's ``rdma_topo`` (``rdma_topo dump``) as a partial snapshot.

The dump is a JSON list with an object for each PCI function: ``realpath``, ``modalias`` and
``config`` always, ``vpd``, ``iommu_group``, ``numa_node`` and ``subsystems`` (kind → names of
devices) where there are any; config and VPD are compressed with zlib and written in base64
(kernel-boot/rdma_topo, ``SysfsDevice``). They are files of sysfs, so the probes that read a
node read them here.
"""

import binascii
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from errno import EINVAL, ENOENT
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec.structs import replace

from nodetopo.errors import DecodeError
from nodetopo.model.codec import load_json
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.limits import MAX_GPUS, MAX_HCAS, MAX_HOPS
from nodetopo.model.probe_issue import GPUS, ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.sysfs.pci_config import MAX_VPD_BYTES
from nodetopo.probes.sysfs.pcie import PCI_DEVICES, PciTree
from nodetopo.probes.sysfs.rdma import read_rdma
from nodetopo.probes.sysfs.tree import Act, Key, Outcome, Refusal, Tree

PROBE = "rdma-topo"

CURE = "run `rdma_topo dump > FILE` as root on the node (rdma-core 62 or later)"

MAX_FUNCTIONS = 65536
"""PCI functions; a domain has as many at most, and a large node some thousand in all."""

MAX_UNPACKED_BYTES = 64 << 20
"""Limit for all config spaces and VPDs together: enough for 16,000 functions."""

MAX_CONFIG_BYTES = 4096
"""Of the config space of a PCI Express function."""

_MODALIAS = re.compile(
    r"pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv0000([0-9A-F]{4})sd0000([0-9A-F]{4})"
    r"bc([0-9A-F]{2})sc([0-9A-F]{2})i([0-9A-F]{2})"
)
"""Kernel drivers/pci/pci-sysfs.c, modalias_show."""

_IDS = ("vendor", "device", "subsystem_vendor", "subsystem_device")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}")
_DEVICES = "/devices/"
_MAX_PARTS = MAX_HOPS + 2
"""Of a place: ``devices``, the host bridge, and a hop for each function."""


def parse_rdma_topo(text: str) -> Snapshot:
    """Return the part of the node that a dump holds: PCI functions, GPUs and HCAs by name.

    GPUs are numbered by PCI address, as NVML counts. Ports, links, CPUs and NVLinks are not in
    the file, nor which HCA is a virtual function.

    Raises:
        DecodeError: not such a dump; its path names the entry, e.g. ``[3].config``.
    """
    tree = DumpTree(_entries(text))
    pci = PciTree(tree)
    rdma = read_rdma(tree, pci)
    placed = [
        function for address in pci.nvidia_gpus() if (function := pci.function(address)) is not None
    ]
    if len(placed) > MAX_GPUS or len(rdma.hcas or ()) > MAX_HCAS:
        raise DecodeError("", f"more than {MAX_GPUS} GPUs or {MAX_HCAS} HCAs", CURE)
    gpus = tuple(
        Gpu(
            index=index,
            pci=it.address,
            path=it.path,
            function=it.facts,
            numa_node=it.numa_node,
        )
        for index, it in enumerate(placed)
    )
    paths = [gpu.path for gpu in gpus]
    paths += [hca.path for hca in (*(rdma.hcas or ()), *(rdma.management_hcas or ()))]
    paths += [direct.path for direct in rdma.data_directs or ()]
    bridges = pci.bridges(filter(None, paths))
    issues = [
        ProbeIssue(probe=PROBE, subject=issue.subject, reason=issue.reason)
        for issue in (*pci.issues, *rdma.issues)
    ]
    if not gpus:
        issues.append(ProbeIssue(probe=PROBE, subject=GPUS, reason="none in the file"))
    return Snapshot(
        gpus=gpus,
        pci_gpus=tuple(function.address for function in placed),
        nvswitches=pci.nvswitches(),
        bridges=bridges,
        hcas=_without_kind(rdma.hcas),
        data_directs=rdma.data_directs,
        management_hcas=_without_kind(rdma.management_hcas),
        issues=tuple(issues),
    )


def _without_kind(hcas: tuple[Hca, ...] | None) -> tuple[Hca, ...] | None:
    """Return *hcas* without kinds and devices, which the file lacks."""
    return None if hcas is None else tuple(replace(hca, kind=None) for hca in hcas)


class DumpTree(Tree):
    """The files of sysfs that a dump holds, as the probes read them.

    Args:
        files: path → bytes of a file, or the path that a symbolic link leads to.
    """

    def __init__(self, files: Mapping[str, bytes | PurePosixPath]) -> None:
        super().__init__(Path("/"))
        self._files = files
        self._folders: dict[str, set[str]] = {}
        for path in files:
            parts = PurePosixPath(path).parts
            for depth in range(len(parts)):
                self._folders.setdefault("/".join(parts[:depth]), set()).add(parts[depth])

    def outcome(self, key: Key) -> Outcome:
        act, path = key
        if act is Act.LINK:
            parent, _, name = path.rpartition("/")
            found = self._files.get(f"{self._real(parent)}/{name}")
            return (
                str(found)
                if isinstance(found, PurePosixPath)
                else Refusal(EINVAL if found else ENOENT)
            )
        real = self._real(path)
        content = self._files.get(real)
        if act is Act.CONTENT and isinstance(content, bytes):
            return content
        if act is Act.NAMES and real in self._folders:
            return tuple(sorted(self._folders[real]))
        if act is Act.REAL and (real in self._folders or real in self._files):
            return real
        if act is Act.FOLDER and real in self._folders:
            return path == real
        return Refusal(ENOENT)

    def _real(self, path: str) -> str:
        """Return *path* without links; a dump's links lead to paths without links."""
        at = ""
        for part in PurePosixPath(path).parts:
            at = f"{at}/{part}" if at else part
            target = self._files.get(at)
            if isinstance(target, PurePosixPath):
                at = str(target)
        return at


def _entries(text: str) -> dict[str, bytes | PurePosixPath]:
    try:
        document = load_json(text)
    except DecodeError as error:
        raise DecodeError("", error.problem, CURE) from None
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise DecodeError("", "not a list of PCI functions", CURE)
    if not document:
        raise DecodeError("", "no PCI function in it", CURE)
    if len(document) > MAX_FUNCTIONS:
        raise DecodeError("", f"more than {MAX_FUNCTIONS} PCI functions", CURE)
    files: dict[str, bytes | PurePosixPath] = {}
    unpacked = 0
    for position, entry in enumerate(document):
        for path, content in _files_of(f"[{position}]", entry):
            unpacked += len(content) if isinstance(content, bytes) else 0
            if unpacked > MAX_UNPACKED_BYTES:
                problem = f"more than {MAX_UNPACKED_BYTES >> 20} MiB of config space and VPD"
                raise DecodeError(f"[{position}]", problem, CURE)
            if path in files and files[path] != content and path.startswith(PCI_DEVICES):
                raise DecodeError(f"[{position}].realpath", "stands there twice", CURE)
            files[path] = content
    return files


def _files_of(at: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, bytes | PurePosixPath]]:
    """Yield the files of one function, relative to ``/sys``."""
    for name in ("realpath", "modalias", "config"):
        if not isinstance(entry.get(name), str):
            raise DecodeError(f"{at}.{name}", "missing, or no text", CURE)
    _, found, below = entry["realpath"].partition(_DEVICES)
    place = PurePosixPath(f"devices/{below}")
    if len(place.parts) > _MAX_PARTS:
        raise DecodeError(f"{at}.realpath", f"more than {MAX_HOPS} bridges deep", CURE)
    if not found or ".." in place.parts or str(place) != f"devices/{below}":
        raise DecodeError(
            f"{at}.realpath", f"no place of a device: {entry['realpath'][:80]!r}", CURE
        )
    match = _MODALIAS.match(entry["modalias"])
    if match is None:
        raise DecodeError(f"{at}.modalias", f"no PCI ids: {entry['modalias'][:80]!r}", CURE)
    yield f"{PCI_DEVICES}/{place.name}", place
    for name, value in zip(_IDS, match.groups(), strict=False):
        yield f"{place}/{name}", f"0x{value.lower()}\n".encode()
    yield f"{place}/class", f"0x{''.join(match.groups()[4:]).lower()}\n".encode()
    for name, limit in (("config", MAX_CONFIG_BYTES), ("vpd", MAX_VPD_BYTES)):
        if entry.get(name) is not None:
            yield f"{place}/{name}", _unpacked(f"{at}.{name}", entry[name], limit)
    for name in ("numa_node", "iommu_group"):
        number = entry.get(name)
        if number is None:
            continue
        if type(number) is not int or not -1 <= number < 1 << 31:
            raise DecodeError(f"{at}.{name}", "not a number", CURE)
        if name == "numa_node":
            yield f"{place}/{name}", b"%d\n" % number
        else:
            yield f"{place}/{name}", PurePosixPath(f"kernel/iommu_groups/{number}")
    yield from _subsystems(at, place, entry.get("subsystems") or {})


def _subsystems(
    at: str, place: PurePosixPath, kinds: Any
) -> Iterator[tuple[str, bytes | PurePosixPath]]:
    """Yield the directories of a function's RDMA devices and network interfaces."""
    if not isinstance(kinds, dict):
        raise DecodeError(f"{at}.subsystems", "not an object", CURE)
    for kind in ("infiniband", "net"):
        names = kinds.get(kind, [])
        if not isinstance(names, list):
            raise DecodeError(f"{at}.subsystems.{kind}", "not a list", CURE)
        for name in names:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise DecodeError(f"{at}.subsystems.{kind}", f"not a name: {name!r:.80}", CURE)
            yield f"class/{kind}/{name}", place / kind / name
            yield f"{place}/{kind}/{name}/device", place


def _unpacked(at: str, text: Any, limit: int) -> bytes:
    if not isinstance(text, str):
        raise DecodeError(at, "no text", CURE)
    try:
        content = zlib.decompressobj().decompress(b64decode(text, validate=True), limit + 1)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise DecodeError(at, f"not zlib in base64: {error}", CURE) from None
    if len(content) > limit:
        raise DecodeError(at, f"more than {limit} bytes", CURE)
    return content
