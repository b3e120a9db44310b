"""CDI's own library, tags.cncf.io/container-device-interface, which resolves names for runtimes."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from msgspec import Struct

from tests.lab.go_program import GoPrograms

_PROGRAM = "cdi-resolve"


class Resolved(Struct, frozen=True):
    """A device that the library resolves.

    Attributes:
        path: of the file that defines it.
        problem: why its edits cannot be applied here; empty if they can.
        numbers: type and numbers of each device node, such as ``c 1:3``, by path in a container.
    """

    path: str
    problem: str
    numbers: Mapping[str, str]


class Answer(Struct, frozen=True):
    """What the library makes of directories: devices by qualified name, errors by file."""

    devices: Mapping[str, Resolved]
    errors: Mapping[str, Sequence[str]]


class Library:
    """The library in a process, asked line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def resolve(self, directories: Sequence[Path]) -> Answer:
        """Return what it makes of *directories*, in ascending order of precedence."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path) for path in directories]) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        devices = {name: Resolved(**device) for name, device in found["devices"].items()}
        return Answer(devices, found["errors"])


@cache
def program() -> Path:
    """Return the program, building it if it is not there.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    module = Path(__file__).parent
    return (
        GoPrograms(shelf="lab", title="cdi", module=module, packages={_PROGRAM: "."}).folder()
        / _PROGRAM
    )


@contextmanager
def library() -> Iterator[Library]:
    """Lend the library for a while."""
    command = [program()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield Library(process)
