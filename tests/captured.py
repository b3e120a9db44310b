"""The captured machines of `tests/nodes`: real nodes, read by `nodetopo capture --raw --scrub`.

A directory has what the capture wrote (``nvml.txt``, ``sysfs.txt``, ``snapshot.json``) and goldens.
In ``peers`` is what other programs printed on the same machine, to be compared with ours.
"""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Origin, Provenance, Snapshot

_NODES = Path(__file__).parent / "nodes"


class Captured(Struct, frozen=True, kw_only=True):
    """A captured machine.

    Attributes:
        shape: directory under ``tests/nodes``.
        name: of the bundled snapshot.
        description: one line for people.
        sources: what was run there.
    """

    shape: str
    name: str
    description: str
    sources: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return _NODES / self.shape

    @property
    def snapshot(self) -> Snapshot:
        """What was captured."""
        return decode((self.directory / "snapshot.json").read_text("utf-8")).snapshot

    @property
    def bundled(self) -> Snapshot:
        """The snapshot that ships with the package: under its name, and with its provenance."""
        provenance = Provenance(
            origin=Origin.CAPTURED, description=self.description, sources=self.sources
        )
        return replace(self.snapshot, node=self.name, provenance=provenance)

    def peer(self, name: str) -> str:
        """Return what the file *name* says that another program printed there."""
        return (self.directory / "peers" / name).read_text("utf-8")


_RUN = "nodetopo capture --raw --scrub, nvidia-smi topo -m, NCCL 2.28.9 (NCCL_TOPO_DUMP_FILE)"
_MACHINE = "driver 580.159.04, Linux 6.18, 16 CPUs, NVLink switched off by NVreg_NvLinkDisable"

CAPTURED = (
    Captured(
        shape="h100x1-vm-1numa",
        name="h100-vm-1",
        description="One H100 SXM module passed through to a virtual machine, without NVLink",
        sources=(f"{_RUN}, GPU Feature Discovery v0.19.0", _MACHINE),
    ),
    Captured(
        shape="h200x1-vm-1numa",
        name="h200-vm-1",
        description="One H200 SXM module passed through to a virtual machine, without NVLink",
        sources=(_RUN, _MACHINE),
    ),
)
"""All of them, by name."""
