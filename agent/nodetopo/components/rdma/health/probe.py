"""A cheap look at the HCAs between two scans: their presence and the state of their ports.

It reads the names in ``/sys/class/infiniband`` and ``ports/*/state`` of the known HCAs, and more
only for missing ones; eight HCAs take 0.3 ms of CPU. It bypasses the scans' tree, which caches, and
does not reread a file that a driver refuses: each refusal costs a firmware command and a line in
the kernel log (prometheus/node_exporter issue 3434). Files: kernel
Documentation/ABI/stable/sysfs-class-infiniband.
"""

import os
import re
from collections.abc import Mapping, Sequence
from errno import EINVAL, EIO, ENOENT, ENXIO, EOPNOTSUPP, EREMOTEIO, ETIMEDOUT
from pathlib import Path

from nodetopo.components.rdma.health.hca import HcaSighting, Presence
from nodetopo.deviceplugin.host_files import exists
from nodetopo.model.pci import PciAddress
from nodetopo.probes.sysfs.pcie import PCI_DEVICES
from nodetopo.rdma.identity import KnownHca, hca_key

COUNTERS = {
    "link_downed": "counters",
    "local_ack_timeout_err": "hw_counters",
    "out_of_sequence": "hw_counters",
    "port_rcv_errors": "counters",
    "port_xmit_discards": "counters",
    "symbol_error": "counters",
}
"""Those of :mod:`nodetopo.probes.sysfs.rdma_ports` that show a bad cable or a lossy fabric, and the
directory of each: few, since each is a series of each port."""

_REFUSED = (EINVAL, EOPNOTSUPP)
"""Errors of drivers for files that this function of a device lacks, or cannot read."""

_SILENT = (EIO, ENXIO, ETIMEDOUT, EREMOTEIO)
"""How drivers answer when the firmware does not: mlx5 turns a command's failure into these (kernel
drivers/net/ethernet/mellanox/mlx5/core/cmd.c, cmd_status_to_err, mlx5_internal_err_ret_value)."""

_CLASS = "class/infiniband"
_NETNS_MODE = "module/ib_core/parameters/netns_mode"
_NAMELESS = ("UNKNOWN", "<unknown>")
_STATE = re.compile(r"-?[0-9]+: *(\S.*)")
_COUNT = re.compile(r"[0-9]{1,20}")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

_PAGE_BYTES = 4096
"""Of a file of sysfs, at most."""

PortCounters = Mapping[tuple[str, int], Mapping[str, int]]
"""Name of an HCA and number of its port → the counters of :data:`COUNTERS` that it has."""


_SUBFUNCTION = "/sf"
"""Between the address of a function and the number of its subfunction."""


def _home(known: KnownHca) -> str:
    """Return the key of the function or subfunction of *known*, which its own key can name."""
    is_named = known.key.startswith(f"{known.hca.pci}{_SUBFUNCTION}")
    return known.key if is_named else hca_key(known.hca)


class HcaProbe:
    """Looks at the HCAs below *sysfs*; one thread at a time."""

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._class = sysfs / "class" / "infiniband"
        self._refused: set[str] = set()
        self._is_silent = False
        # The names in `/sys/class/infiniband` at the last look; None before it, and where they
        # could not be read.
        self.listing: frozenset[str] | None = None

    def look(self, known: Sequence[KnownHca]) -> Mapping[str, HcaSighting]:
        listing = self._names()
        if listing != self.listing:
            self._refused.clear()  # a new driver can refuse less
        self.listing = listing
        if listing is None:
            return {
                hca.key: HcaSighting(name=hca.hca.name, presence=Presence.UNKNOWN) for hca in known
            }
        names: dict[str, str | None] = {}
        astray = []
        for it in known:
            is_there = it.hca.name in listing and self._is_at_home(it)
            names[it.key] = it.hca.name if is_there else None
            if not is_there:
                astray.append(it)
        if astray:
            names.update(self._names_by_place(astray, listing, set(names.values())))
        return {it.key: self._sighting(it, names[it.key]) for it in known}

    def counters(self, known: Sequence[KnownHca]) -> PortCounters:
        """Return the error counters of the *known* HCAs that are there; unknown ones are absent."""
        listing = self.listing or frozenset()
        names = {}
        for hca in (it.hca for it in known if it.hca.name in listing):
            for port in hca.ports:
                counts = {}
                for name, folder in COUNTERS.items():
                    text = self._text(f"{_CLASS}/{hca.name}/ports/{port.number}/{folder}/{name}")
                    if text is not None and _COUNT.fullmatch(text):
                        counts[name] = int(text)
                names[hca.name, port.number] = counts
        return names

    def _sighting(self, known: KnownHca, name: str | None) -> HcaSighting:
        if name is None:
            return HcaSighting(name=known.hca.name, presence=self._absence(known.hca.pci))
        self._is_silent = False
        states = tuple(
            self._state(f"{_CLASS}/{name}/ports/{port.number}/state") for port in known.hca.ports
        )
        return HcaSighting(
            name=name, presence=Presence.LISTED, states=states, is_silent=self._is_silent
        )

    def _is_at_home(self, known: KnownHca) -> bool:
        """Return whether the name still belongs to the same function, or the same subfunction.

        Reloaded drivers can number their devices in another order.
        """
        if known.hca.pci is None:
            return True
        home = _home(known)
        if _SUBFUNCTION in home:  # the number is one more file to read
            return self._place(known.hca.name) in (home, "")
        try:
            place = (self._class / known.hca.name).readlink()
        except OSError:
            return True  # removed since the listing, which the ports will show
        return str(known.hca.pci) in place.parts

    def _names_by_place(
        self, astray: Sequence[KnownHca], listing: frozenset[str], taken: set[str | None]
    ) -> Mapping[str, str]:
        """Return key → name of those HCAs in *astray* that are listed under another name."""
        places: dict[str, list[str]] = {}
        for name in sorted(listing - taken):
            places.setdefault(self._place(name), []).append(name)
        return {
            it.key: found[0]
            for it in astray
            if it.hca.pci is not None and len(found := places.get(_home(it), [])) == 1
        }

    def _place(self, name: str) -> str:
        """Return the key of the function, or the subfunction, that *name* leads to."""
        try:
            addresses = _ADDRESS.findall(str((self._class / name).readlink()))
        except OSError:
            return ""
        subfunction = self._text(f"{_CLASS}/{name}/device/sfnum")
        pci = addresses[-1] if addresses else ""
        return pci if subfunction is None else f"{pci}{_SUBFUNCTION}{subfunction}"

    def _absence(self, pci: PciAddress | None) -> Presence:
        """Return the presence of an HCA that is not listed."""
        if pci is None or not exists(self._sysfs / PCI_DEVICES):
            return Presence.MISSING
        function = self._sysfs / PCI_DEVICES / str(pci)
        if not os.path.lexists(function):
            return Presence.REMOVED
        if not os.path.lexists(function / "driver"):
            return Presence.UNBOUND
        is_exclusive = self._text(_NETNS_MODE) == "N"
        return Presence.HIDDEN if is_exclusive else Presence.UNREGISTERED

    def _state(self, path: str) -> str | None:
        text = self._text(path)
        match = None if text is None else _STATE.fullmatch(text)
        return None if match is None or match[1] in _NAMELESS else match[1]

    def _text(self, path: str) -> str | None:
        """Return the text of a file; ``None`` where it cannot be read, or could not before."""
        if path in self._refused:
            return None
        try:
            descriptor = os.open(
                f"{self._sysfs}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            )
            try:
                content = os.read(descriptor, _PAGE_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in _REFUSED:
                self._refused.add(path)
            self._is_silent = self._is_silent or error.errno in _SILENT
            return None
        return content.decode("utf-8", "replace").strip()

    def _names(self) -> frozenset[str] | None:
        try:
            return frozenset(place.name for place in self._class.iterdir())
        except OSError as error:
            # Without the module there is no directory; every other failure proves nothing.
            return frozenset() if error.errno == ENOENT else None
