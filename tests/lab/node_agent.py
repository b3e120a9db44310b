"""Our daemon on a simulated node, started as a person would start it."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.lab.go_program import user_cache
from tests.lab.processes import Processes, Program
from tests.lab.waiting import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
_SCAN_INTERVAL_S = 5
_RECOVERY_S = 2


class NodeAgent:
    """The agent of one node, outside of the kubelet's mount namespace.

    A second one on the node has a *log_name* and a *home* of its own. *python* runs it instead of
    the interpreter of the tests; its compiled modules are kept, whatever the environment says.
    """

    def __init__(
        self,
        node_name: str,
        machine_dir: Path,
        *,
        home: Path,
        host: Path,
        kubeconfig: Path,
        processes: Processes,
        log_name: str = "agent",
        python: Path | None = None,
    ) -> None:
        self._python = python or Path(sys.executable)
        self._environment = {"NODETOPO_FAKE_NVML": str(home / "nvml")}
        if python is not None:
            compiled = {"PYTHONPYCACHEPREFIX": str(home / "compiled")}
            self._environment |= compiled | {"PYTHONDONTWRITEBYTECODE": ""}
        self._node_name = node_name
        self._program_name = f"{node_name}-{log_name}"
        self._host = host
        self._kubelet_dir = host / "var" / "lib" / "kubelet"
        self._kubeconfig = kubeconfig
        self._processes = processes
        self._program: Program | None = None
        self._log_start = 0
        self._is_faulty = False
        self._answers = (machine_dir / "nvml.txt").read_text("utf-8")
        self._nvml = FakeNvml(home / "nvml", self._answers)

    @property
    def socket_dir(self) -> Path:
        """Where the kubelet and the device plugin have their sockets."""
        return self._kubelet_dir / "device-plugins"

    def start(
        self,
        extra_args: Sequence[str] = (),
        *,
        code: Path = REPOSITORY,
        prefix: Sequence[str] = (),
    ) -> None:
        """Start the daemon; return at once, before it has registered.

        Args:
            extra_args: more of the command line.
            code: the checkout whose ``nodetopo`` is run: another version, perhaps.
            prefix: the command by way of which it is started, such as ``unshare``.
        """
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        self._program = self._processes.start(
            self._program_name,
            [self._python, "-m", "nodetopo", "run", *self._flags(), *extra_args],
            environment=self._environment,
            directory=code / "agent",
            prefix=prefix,
        )

    def stop(self) -> None:
        """End the daemon as an operator would, with SIGTERM."""
        self._processes.stop(self._started())
        self._program = None

    def kill(self) -> None:
        """End the daemon and its NVML child with SIGKILL."""
        self._processes.kill(self._started())
        self._program = None

    def wait_ended(self) -> int:
        """Wait until the daemon has ended by itself; return its exit status."""
        program, self._program = self._started(), None
        return program.process.wait(PATIENCE_S)

    def end(self) -> None:
        """Kill the daemon if it was started."""
        if self._program is not None:
            self.kill()

    @contextmanager
    def frozen(self, *, child: bool = False) -> Iterator[None]:
        """Keep the daemon, or its NVML child, from running on (SIGSTOP) for the time of a block."""
        pid = self._child() if child else self._started().process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):  # a child that hung was killed and replaced
                os.kill(pid, signal.SIGCONT)

    def check_running(self) -> None:
        """Raise LabFailure with the end of the log if the daemon was started and ended."""
        if self._program is not None:
            self._program.check_running()

    def fail(self, *faults: str) -> None:
        """Make the fake NVML library misbehave from its next call on, until :meth:`heal`."""
        self._is_faulty = True
        self._nvml.fail(*faults)

    def xid(self, gpu: int | str, code: int, count: int = 1) -> None:
        """Let *gpu* report an XID, *count* times; :meth:`heal` ends what comes of it."""
        self._is_faulty = True
        self._nvml.xid(gpu, code, count)

    def mend(self) -> None:
        """End the faults of the hardware; the daemon runs on, and may find out by itself."""
        self._nvml.fail()

    def change_answer(self, call: str, answer: str) -> None:
        """Make the fake NVML library answer *call* anew, until :meth:`heal`.

        *answer* is the return code and the values, as ``nvml.txt`` writes them.
        """
        lines = self._answers.splitlines()
        assert any(line.startswith(f"{call} = ") for line in lines), f"no {call!r} in nvml.txt"
        self._is_faulty = True  # a GPU that was replaced stays known to this daemon, as lost
        changed = (
            f"{call} = {answer}" if line.startswith(f"{call} = ") else line for line in lines
        )
        self._nvml.answer("\n".join(changed) + "\n")

    def heal(self, extra_args: Sequence[str] = ()) -> None:
        """Undo what a test did: the machine is well again, and the agent runs.

        An agent that has to be started anew gets *extra_args*, as in :meth:`start`.
        """
        self._nvml.answer(self._answers)
        self._nvml.fail()
        is_running = self._program is not None and self._program.is_running
        if is_running and self._is_faulty:
            self.kill()
        if not is_running or self._is_faulty:
            for name in ("health.json", "gpus.json"):  # the faults of one test are over
                (self.state / name).unlink(missing_ok=True)
            self.start(extra_args)
        self._is_faulty = False

    def plugin_socket(self) -> Path:
        """Return the socket on which the agent serves the kubelet."""
        sockets = set(self.socket_dir.glob("*.sock")) - {self.socket_dir / "kubelet.sock"}
        (found,) = sockets
        return found

    def log_since_start(self) -> str:
        """Return what the agent logged since it was last started, in whole lines."""
        text = self._log.read_bytes()[self._log_start :]
        return text[: text.rfind(b"\n") + 1].decode(errors="replace")

    def registrations(self) -> int:
        """Return how often the agent registered since it was last started."""
        return self.log_since_start().count('"event": "resource registered"')

    @property
    def state(self) -> Path:
        """Where the daemon keeps what outlives it."""
        return self._nvml.directory.parent

    @property
    def _log(self) -> Path:
        return self._processes.log_dir / f"{self._program_name}.log"

    def _child(self) -> int:
        """Return the process id of the NVML child, the daemon's only one (proc_pid_task(5))."""
        pid = self._started().process.pid
        children = []
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
                children += (thread / "children").read_text().split()
        (child,) = children
        return int(child)

    def nvml_processes(self) -> list[int]:
        """Return the daemon and its descendants, as far as they have the NVML library loaded."""
        daemon = psutil.Process(self._started().process.pid)
        name = library(user_cache()).name
        found = []
        for process in (daemon, *daemon.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if any(name in mapped.path for mapped in process.memory_maps()):
                    found.append(process.pid)
        return found

    def listens(self) -> bool:
        """Return whether the present NVML child has registered for events of all GPUs."""
        present = set(self.nvml_processes())
        count = self._answers.count("nvmlDeviceGetUUID ")
        return sum(pid in present for pid, _gpu, _mask in self._nvml.registered) >= count > 0

    def _started(self) -> Program:
        assert self._program is not None, "the agent was not started"
        return self._program

    @property
    def nvml_directory(self) -> Path:
        """What the fake NVML library reads (``NODETOPO_FAKE_NVML``)."""
        return self._nvml.directory

    def _flags(self) -> list[str]:
        return [text for name, value in self.settings().items() for text in (f"--{name}", value)]

    def settings(self) -> dict[str, str]:
        """Return the settings of its command line by flag, without the dashes."""
        values = {
            "sysfs-root": self._host / "sys",
            "procfs-root": self._host / "proc",
            "host-root": self._host,
            "nvml-library": library(user_cache()),
            "node-name": self._node_name,
            "kubeconfig": self._kubeconfig,
            "device-plugin-dir": self.socket_dir,
            "pod-resources-socket": self._kubelet_dir / "pod-resources" / "kubelet.sock",
            "metrics-address": "127.0.0.1:0",
            "scan-interval": _SCAN_INTERVAL_S,
            "health-file": self.state / "health.json",
            "recovery": _RECOVERY_S,
        }
        return {name: str(value) for name, value in values.items()}
