"""NVIDIA's device plugin on a simulated machine."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.fake_nvml.build import library
from tests.lab.go_program import user_cache
from tests.lab.namespace import KUBELET_DIR, required_flags
from tests.lab.nvidia.build import PLUGIN, programs
from tests.lab.processes import Processes, Program

_SEEN = ("sys", "proc/driver")
"""What of the machine it reads beside device nodes: NUMA nodes, the numbers of MIG's nodes."""

CDI = Path("run", "cdi")
"""Below the root of the machine's files: its CDI specifications, written to ``/var/run/cdi``."""


class NvidiaPlugin:
    """The plugin in a mount namespace of its own: it has its paths compiled in.

    Attributes:
        log: what it said, of every start.
    """

    def __init__(
        self, name: str, *, host: Path, socket_dir: Path, nvml: Path, processes: Processes
    ) -> None:
        """Prepare the plugin of node *name*; start nothing.

        Args:
            name: begins the name of the log.
            host: root of the machine's files.
            socket_dir: becomes ``/var/lib/kubelet/device-plugins``.
            nvml: directory of the fake library's answers.
            processes: starts and ends it.
        """
        self._name = name
        self._host = host
        self._socket_dir = socket_dir
        self._nvml = nvml
        self._processes = processes
        self._program: Program | None = None
        for place in (*map(Path, _SEEN), Path("dev"), CDI):
            (host / place).mkdir(parents=True, exist_ok=True)
        (host / "dev" / "null").touch()
        (host / "dev" / "shm").mkdir(exist_ok=True)
        self.log = processes.log_dir / f"{name}-nvidia.log"

    def start(self, config: Path) -> None:
        """Start it with the file *config*; return at once, before it has registered."""
        self._program = self._processes.start(
            f"{self._name}-nvidia",
            [programs() / PLUGIN, f"--config-file={config}"],
            prefix=self._entering(),
            environment={"NODETOPO_FAKE_NVML": str(self._nvml), "LD_LIBRARY_PATH": _library()},
        )

    def stop(self) -> None:
        """End it as an operator would, with SIGTERM."""
        self._processes.stop(self._started())
        self._program = None

    def kill(self) -> None:
        """End it with SIGKILL; its sockets stay."""
        self._processes.kill(self._started())
        self._program = None

    def end(self) -> None:
        """Kill it if it runs."""
        if self._program is not None:
            self.kill()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._program is not None and self._program.is_running

    def check_running(self) -> None:
        """Raise LabFailure with the end of its log if it was started and ended."""
        if self._program is not None:
            self._program.check_running()

    def _started(self) -> Program:
        assert self._program is not None, "NVIDIA's plugin was not started"
        return self._program

    def _entering(self) -> tuple[str, ...]:
        """Return the command prefix that shows it the machine and no other kubelet's sockets."""
        flags = required_flags()
        lines = ["set -e", *(_bind(self._host / place, Path("/", place)) for place in _SEEN)]
        lines += _covered("/var/lib", self._socket_dir, KUBELET_DIR / "device-plugins")
        lines += _covered("/run", self._host / CDI, Path("/", CDI))
        lines += self._devices()
        lines += ['exec "$@"']
        return ("unshare", *flags, "sh", "-c", "\n".join(lines), "lab")

    def _devices(self) -> Iterator[str]:
        """Yield what makes the files of the machine's ``/dev`` device nodes, without rights."""
        dev = self._host / "dev"
        for file in sorted(path for path in dev.rglob("*") if path.is_file()):
            yield _bind(Path("/dev/null"), file)
        yield _bind(Path("/dev/shm"), dev / "shm")  # the lab itself may lie there
        yield f"mount --rbind {shlex.quote(str(dev))} /dev"


def _library() -> str:
    return str(library(user_cache()))


def _covered(top: str, source: Path, place: Path) -> Iterator[str]:
    """Yield what hides the real *top* and shows *source* at *place* in it."""
    yield f"mount -t tmpfs lab {top}"
    yield f"mkdir -p {place}"
    yield _bind(source, place)


def _bind(source: Path, place: Path) -> str:
    return f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(place))}"
