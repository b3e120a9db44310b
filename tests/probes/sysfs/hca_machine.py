"""The sysfs of a machine whose HCAs a test renames, moves, breaks and takes away."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.sysfs.pcie import PCI_DEVICES, PciTree
from nodetopo.probes.sysfs.rdma import read_rdma


class Errors:
    """Makes files answer with an error when they are opened, as sysfs does when they are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_end: dict[str, int] = {}
        self.opened: Counter[str] = Counter()
        self._open = os.open
        monkeypatch.setattr(os, "open", self._refuse)

    def _refuse(self, path: Any, *args: Any, **more: Any) -> int:
        self.opened[str(path)] += 1
        for end, code in self.by_end.items():
            if str(path).endswith(end):
                raise OSError(code, os.strerror(code))
        return self._open(path, *args, **more)


class HcaMachine:
    """The tree at *sysfs*, changed as drivers, udev and people change it."""

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs

    def snapshot(self) -> Snapshot:
        """Return what a scan shows of the HCAs now."""
        reading = read_rdma(self.sysfs, PciTree(self.sysfs))
        return Snapshot(hcas=reading.hcas, management_hcas=reading.management_hcas)

    def write(self, place: str, text: str) -> None:
        """Write a file, with the kernel's newline."""
        file = self.sysfs / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", "utf-8")

    def set_state(self, name: str, text: str) -> None:
        """Give port 1 of an RDMA device a state, e.g. ``1: DOWN``."""
        self.write(f"class/infiniband/{name}/ports/1/state", text)

    def place(self, name: str) -> Path:
        """Return the real directory of an RDMA device."""
        return (self.sysfs / "class/infiniband" / name).resolve(strict=True)

    def function(self, name: str) -> Path:
        """Return the real directory of the PCI function of an RDMA device."""
        device = self.sysfs / "class/infiniband" / name / "device"
        return (self.sysfs / PCI_DEVICES / device.resolve(strict=True).name).resolve(strict=True)

    def remove(self, name: str) -> Callable[[], None]:
        """Take an RDMA device away, as its driver does, or a move to another network namespace.

        Return what brings it back.
        """
        link = self.sysfs / "class/infiniband" / name
        place, target = self.place(name), link.readlink()
        kept = self.sysfs.with_name(f"removed {name}")
        shutil.move(place, kept)
        link.unlink()

        def back() -> None:
            shutil.move(kept, place)
            link.symlink_to(target)

        return back

    def rename(self, name: str, to: str) -> None:
        """Rename an RDMA device, as udev does."""
        link = self.sysfs / "class/infiniband" / name
        place, target = self.place(name), link.readlink()
        place.rename(place.with_name(to))
        link.unlink()
        link.with_name(to).symlink_to(target.with_name(to))
        for kind in ("verbs", "mad"):
            for file in (self.sysfs / f"class/infiniband_{kind}").glob("*/ibdev"):
                if file.read_text("utf-8").strip() == name:
                    file.write_text(f"{to}\n", "utf-8")
