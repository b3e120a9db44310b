"""A node's container runtime: Kubernetes' in-memory one, and what the kubelet asked it for."""

import json
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue
from msgspec import Struct

from tests.lab.processes import Processes, Program
from tests.lab.waiting import wait_for

_STOP = "/runtime.v1.RuntimeService/StopContainer"


class Created(Struct, frozen=True, kw_only=True):
    """One container as the kubelet asked for it: what its program would see of devices.

    Attributes:
        id: the runtime's name for it.
        attempt: 0 for a pod's first container of this name, one more for each restart.
        cdi: CDI device names, ascending.
        devices: device nodes on the host.
        mounts: directories and files of the host.
    """

    id: str
    container: str
    attempt: int
    cdi: tuple[str, ...]
    devices: tuple[str, ...]
    mounts: tuple[str, ...]
    env: dict[str, str]


class Runtime:
    """The runtime of the node called *node_name*; it serves at :attr:`socket`.

    Containers have no process and run until :meth:`end_container`.
    """

    def __init__(self, node_name: str, home: Path, program: Path, processes: Processes) -> None:
        self.socket = home / "cri.sock"
        self._cdi_directories = home / "cdi-directories"
        self._name = f"{node_name}-fakecri"
        self._command = program
        self._processes = processes
        self._program: Program | None = None

    def start(self) -> None:
        """Start it without any pod, and wait until it serves."""
        self.socket.unlink(missing_ok=True)
        command: list[str | Path] = [self._command, f"unix://{self.socket}", self._cdi_directories]
        self._program = self._processes.start(self._name, command)
        wait_for("the container runtime serves", self.socket.exists)

    def kill(self) -> None:
        """End it, if it was started; its pods and containers are gone with it."""
        if self._program is not None:
            self._processes.kill(self._program)

    def resolve_cdi(self, *directories: Path) -> None:
        """Create no container from now on with a CDI name that no file in *directories* defines.

        With none of them, names are taken as they come, as at the start.
        """
        self._cdi_directories.write_text("\n".join(map(str, directories)), "utf-8")
        if not directories:
            self._cdi_directories.unlink()

    def created(self, pod: str) -> tuple[Created, ...]:
        """Return every container made so far for the last pod of that name, in order."""
        text = (self._processes.log_dir / f"{self._name}.log").read_text("utf-8", "replace")
        lines = text[: text.rfind("\n") + 1].splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        named = [entry for entry in entries if entry["pod"] == pod]
        return tuple(_created(entry) for entry in named if entry["uid"] == named[-1]["uid"])

    def end_container(self, container: Created) -> None:
        """Make the container end by itself with status 0."""
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            # StopContainerRequest has the id as its field 1 (CRI v1), as StringValue its value.
            stop: Any = channel.unary_unary(_STOP)
            stop(StringValue(value=container.id).SerializeToString(), timeout=60)


def _created(entry: dict[str, Any]) -> Created:
    return Created(
        id=entry["id"],
        container=entry["container"],
        attempt=entry["attempt"],
        cdi=tuple(sorted(entry["cdi"])),
        devices=tuple(entry["devices"]),
        mounts=tuple(entry["mounts"]),
        env=entry["env"],
    )
