"""The Container Device Interface: specification files, and which of them defines a device."""

from collections.abc import Iterable, Sequence
from posixpath import dirname, normpath

from msgspec import Struct

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
"""Where runtimes look unless configured otherwise, in ascending order of precedence
(container-device-interface v1.1.0, pkg/cdi/spec-dirs.go)."""


class HostNode(Struct, frozen=True, kw_only=True):
    """The kind of a path on the host, without following a final link."""

    exists: bool | None  # None if not visible
    type: str | None = None  # b, c, or p of a device node, empty for anything else
    numbers: tuple[int, int] | None = None  # major and minor


class CdiFault(Struct, frozen=True, kw_only=True):
    """Why containers with devices of a specification do not start, or cannot use the devices."""

    reason: str  # a clause whose subject is the file: "names /dev/nvidia1, which does not exist"
    devices: tuple[str, ...] = ()  # empty for all of the file

    def concerns(self, device: str) -> bool:
        """Return whether a container with *device* has the fault."""
        return not self.devices or device in self.devices


class CdiSpec(Struct, frozen=True, kw_only=True):
    """A Container Device Interface specification file."""

    path: str
    kind: str | None = None  # nvidia.com/gpu …; None where the file is no specification
    devices: tuple[str, ...] = ()  # in the order of the file
    # The driver whose libraries it mounts (`libcuda.so.<version>`); None where it mounts none.
    driver_version: str | None = None
    # Why CDI ignores the file; None if it is valid, or could not be read here.
    error: str | None = None
    # What a container runtime cannot apply on this host, or applies to no effect.
    faults: tuple[CdiFault, ...] = ()
    # Host paths of device nodes, hooks and the driver's libraries that could not be looked up, so
    # that `faults` might be incomplete.
    unseen: tuple[str, ...] = ()

    def fault_of(self, device: str, driver: str | None) -> str | None:
        """Return the first fault of *device*, a clause; ``None`` if none is known."""
        for fault in self.faults:
            if fault.concerns(device):
                return fault.reason
        if driver and self.driver_version and self.driver_version != driver:
            return f"is of driver {self.driver_version}, and {driver} is loaded"
        return None


class CdiRegistry:
    """Devices as a container runtime resolves them from specification files.

    A directory of higher precedence overrides the devices of a lower one. A device that two files
    of one directory define is dropped, even where another directory overrides it
    (container-device-interface v1.1.0, pkg/cdi/cache.go, refresh).
    """

    def __init__(self, specs: Iterable[CdiSpec], directories: Sequence[str] = DIRECTORIES) -> None:
        """Resolve the devices of *specs*; files outside of *directories* are ignored.

        Args:
            directories: in ascending order of precedence.
        """
        ranks = {directory(path): rank for rank, path in enumerate(directories)}
        places = ((ranks.get(directory(dirname(spec.path))), spec) for spec in specs)
        self._ranked = sorted(
            ((rank, spec) for rank, spec in places if rank is not None), key=lambda it: it[0]
        )
        self._conflicts: dict[str, tuple[str, str]] = {}
        found: dict[str, tuple[int, CdiSpec]] = {}
        for rank, spec in self._ranked:
            if spec.kind is None or spec.error is not None:
                continue
            for device in spec.devices:
                name = device_name(spec.kind, device)
                before = found.get(name)
                if before is not None and before[0] == rank:
                    self._conflicts[name] = (before[1].path, spec.path)
                else:
                    found[name] = (rank, spec)
        self._found = {
            name: spec for name, (_, spec) in found.items() if name not in self._conflicts
        }

    def specs(self, kind: str) -> tuple[CdiSpec, ...]:
        """Return the valid files of *kind* that define a device in force."""
        return tuple(spec for spec in self._valid(kind) if self.devices(spec))

    def devices(self, spec: CdiSpec) -> tuple[str, ...]:
        """Return the devices that a runtime takes from *spec*, in their order."""
        names = ((device, device_name(spec.kind or "", device)) for device in spec.devices)
        return tuple(device for device, name in names if self._found.get(name) is spec)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the devices of *kind* that a runtime resolves."""
        return tuple(device for spec in self._valid(kind) for device in self.devices(spec))

    def conflict(self, kind: str, device: str) -> tuple[str, str] | None:
        """Return two files that define *device* in one directory; ``None`` without a conflict."""
        return self._conflicts.get(device_name(kind, device))

    def fault(self, kind: str, device: str, driver: str | None) -> str | None:
        """Return why no container gets *device*, a clause; ``None`` if nothing is known against it.

        Args:
            kind: vendor and class of the device.
            driver: version of the loaded driver; ``None`` if it is not known.
        """
        if both := self.conflict(kind, device):
            return f"{both[0]} and {both[1]} both define {device}, and CDI drops it"
        spec = self._found.get(device_name(kind, device))
        if spec is not None:
            fault = spec.fault_of(device, driver)
            return None if fault is None else f"{spec.path} {fault}"
        if valid := self._valid(kind):
            return f"{valid[-1].path} does not name {device}"
        for _, ignored in self._ranked:
            if ignored.kind == kind:
                return f"CDI ignores {ignored.path}: {ignored.error}"
        return f"no CDI specification of {kind}"

    def _valid(self, kind: str) -> tuple[CdiSpec, ...]:
        return tuple(spec for _, spec in self._ranked if spec.kind == kind and spec.error is None)


def device_name(kind: str, device: str) -> str:
    """Return the fully qualified name of *device*, ``vendor/class=device``."""
    return f"{kind}={device}"


def directory(path: str) -> str:
    """Return *path* under its shorter name: ``/var/run`` is a link to ``/run``."""
    plain = normpath(path)
    return plain.removeprefix("/var") if plain.startswith("/var/run/") else plain
