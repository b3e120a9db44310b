"""Memory and idle CPU of the daemon in the lab: ``python -m tests.bench.footprint_lab [CHECKOUT]``.

A real kubelet and a real API server; the GPUs are those of an 8-GPU machine behind the fake NVML
library. The daemon runs as a pod does: in an environment with the runtime's dependencies alone, as
its service account. Three daemons: one without an API server, one as ``deploy/daemonset`` starts
it, and one with everything on. Another checkout is measured beside this one, in turns.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import psutil
from msgspec import Struct

from nodetopo.probes.host import service_account
from tests.lab.api import Api
from tests.lab.cluster import Cluster
from tests.lab.go_program import user_cache
from tests.lab.machine_node import Node
from tests.lab.namespace import required_flags
from tests.lab.schedulers import crds

ROOT = Path(__file__).parents[2]

SHAPE = "h100x8-nvswitch-2numa-8cx7"

SETTLED_S = 75.0
"""After the registration: a second scan has been made, after which memory is given back."""

IDLE_S = 120.0
"""How long CPU is counted after that: two scans."""

LIMIT_S = 120.0

_EVERYTHING = (
    *("--measure-pods", "--publish-pod-events", "--explain-rejections", "--audit-node"),
    *("--publish-zones", "--annotate-pods", "--kubelet-insecure-tls", "--topology-levels=auto"),
    *("--label-outputs=node,nfd-file", "--device-list-strategy=envvar,cdi-cri", "--nccl-hints"),
)
"""All that has a cost, but for the settings that need a file or an address."""


class Process(Struct, frozen=True, kw_only=True):
    """One process: resident and private memory in MiB, and threads.

    Attributes:
        resident: all pages that it uses, shared ones too (RSS).
        private: pages that no file holds (Anonymous).
    """

    resident: float
    private: float
    threads: int


class Cost(Struct, frozen=True, kw_only=True):
    """The cost of one daemon.

    Attributes:
        start: seconds of CPU of both processes until the kubelet has the devices.
        idle: seconds of CPU of both processes in an hour without news.
    """

    start: float
    idle: float
    daemon: Process
    child: Process


def measure(checkouts: Sequence[Path]) -> Iterator[tuple[str, Path, Cost]]:
    """Yield the cost of each kind of daemon, of each of *checkouts* in turns."""
    runtime_python()
    cluster = Cluster()
    cluster.start()
    try:
        for project in ("node-resource-topology", "nfd"):
            crds.install(cluster.api, project)
        node = cluster.add_node("h100", SHAPE)
        command = (str(runtime_python()), "-Xno_debug_ranges", "-m", "nodetopo")  # Dockerfile
        with tempfile.TemporaryDirectory(prefix="nt-") as folder:
            account = Account(cluster.api, cluster.api.token, Path(folder))
            for checkout in checkouts:  # compiles the modules
                with running(node, account, checkout, command, ()):
                    pass
            for kind, flags in _kinds(node, Path(folder)).items():
                for checkout in checkouts:
                    with running(node, account, checkout, command, flags) as pid:
                        yield kind, checkout, _cost(pid)
    finally:
        cluster.stop()


def _kinds(node: Node, folder: Path) -> Mapping[str, Sequence[str]]:
    kernel_log = folder / "kmsg"
    os.mkfifo(kernel_log)  # as /dev/kmsg, it has nothing to read until there is news
    os.open(kernel_log, os.O_RDWR)  # kept open: without a writer it would be at its end
    files = {
        "nfd-file": folder / "nfd" / "nodetopo",
        "nccl-hints-dir": folder / "nccl",
        "cdi-spec-dir": folder / "cdi",
        "kernel-log": kernel_log,
    }
    for name in ("nfd", "nccl", "cdi"):
        (folder / name).mkdir()
    paths = (f"--{name}={path}" for name, path in files.items())
    return {
        "no API server": ("--no-publish-labels", "--no-publish-events", "--no-audit-node"),
        "as deployed": (),
        "everything on": (*_EVERYTHING, f"--kubelet-url={node.kubelet_url}", *paths),
    }


class Account(Struct, frozen=True):
    """A service account: the API server, the token, and a directory for files of the daemon."""

    api: Api
    token: str
    folder: Path

    def mounting(self) -> str:
        """Return the shell command that puts its files where a pod finds them."""
        account = self.folder / "account"
        account.mkdir(exist_ok=True)
        (account / "token").write_text(self.token)
        (account / "ca.crt").write_bytes(self.api.authority.read_bytes())
        place = shlex.quote(str(service_account.DIRECTORY))
        return f"mkdir -p {place}; mount --bind {shlex.quote(str(account))} {place}"


@contextmanager
def running(
    node: Node, account: Account, checkout: Path, program: Sequence[str], flags: Sequence[str]
) -> Iterator[int]:
    """Run a daemon as a pod until the block ends; yield its process id once it is registered.

    Args:
        program: Python and its arguments, up to the module.
        flags: more of the command line; ``--no-publish-labels`` leaves out the API server.

    Raises:
        AssertionError: the kubelet does not get the devices in time.
    """
    folder = account.folder
    agent = {
        name: value
        for name, value in node.agent.settings().items()
        if name not in ("kubeconfig", "scan-interval", "health-file")
    }
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(checkout / "agent"),
        "PYTHONPYCACHEPREFIX": str(folder / sha256(str(checkout).encode()).hexdigest()),
        "NODETOPO_FAKE_NVML": str(node.agent.nvml_directory),
        "NO_PROXY": "127.0.0.1",
    }
    if "--no-publish-labels" not in flags:
        host, port = account.api.url.removeprefix("https://").split(":")
        environment |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    command = [
        *("unshare", *required_flags(), "sh", "-c", f'{account.mounting()}; exec "$@"', "sh"),
        *(*program, "run", "--log-format=json"),
        *(f"--{name}={value}" for name, value in agent.items()),
        *(f"--health-file={folder / 'health.json'}", *flags),
    ]
    log = folder / "output"  # `log` beside the health file is the daemon's own
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=output, stderr=output
        )
    try:
        ends = time.monotonic() + LIMIT_S
        while "resource registered" not in log.read_text():
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < ends, "not registered in time"
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)


def _cost(pid: int) -> Cost:
    start = _cpu_s(pid)
    time.sleep(SETTLED_S)
    before, began = _cpu_s(pid), time.monotonic()
    time.sleep(IDLE_S)
    idle = (_cpu_s(pid) - before) / (time.monotonic() - began) * 3600
    (child,) = psutil.Process(pid).children()
    return Cost(start=start, idle=idle, daemon=process_of(pid), child=process_of(child.pid))


def _cpu_s(pid: int) -> float:
    daemon = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:2]) for each in (daemon, *daemon.children()))


def process_of(pid: int) -> Process:
    """Return the memory of the process *pid* now."""
    sums = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        sums[name.rstrip(":")] = int(value) / 1024  # kB
    threads = psutil.Process(pid).num_threads()
    return Process(resident=sums["Rss"], private=sums["Anonymous"], threads=threads)


def runtime_python() -> Path:
    """Return the Python of an environment with ``requirements-runtime.lock`` and nothing else."""
    lock = ROOT / "requirements-runtime.lock"
    digest = sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = user_cache() / f"runtime-{digest}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = (str(python), "-m", "pip", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, "install", "--require-hashes", "-r", str(lock)], check=True)
        subprocess.run([*pip, "uninstall", "--yes", "pip", "setuptools"], check=True)
        (home / "complete").touch()
    return python


def row(kind: str, name: str, cost: Cost) -> str:
    """Return one line of the table."""
    cells = [f"{cost.start:.2f}", f"{cost.idle:.0f}"]
    for process in (cost.daemon, cost.child):
        cells += [f"{process.resident:.1f}", f"{process.private:.1f}", str(process.threads)]
    cells.append(f"{cost.daemon.resident + cost.child.resident:.1f}")
    return f"{kind:16}{name:16}" + "".join(f"{cell:>9}" for cell in cells)


_PROCESS = ("private", "threads")

HEADER = f"{'':32}" + "".join(
    f"{text:>9}"
    for text in ("start s", "s/hour", "daemon", *_PROCESS, "child", *_PROCESS, "both MiB")
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, of this checkout and of those that are given."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.footprint_lab",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", nargs="*", type=_checkout, help="measured beside this one")
    others = parser.parse_args(arguments).checkout
    print(HEADER)
    for kind, checkout, cost in measure([ROOT, *others]):
        name = "this checkout" if checkout == ROOT else checkout.name
        print(row(kind, name, cost), flush=True)


def _checkout(name: str) -> Path:
    path = Path(name).resolve()
    if not (path / "agent" / "nodetopo").is_dir():
        raise argparse.ArgumentTypeError(f"{name} is no checkout: no agent/nodetopo in it")
    return path


if __name__ == "__main__":
    main()
