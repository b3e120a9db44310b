"""The RDMA shared device plugin v1.5.3 and our daemon on one simulated machine, without a kubelet.

That plugin asks netlink about interfaces, which no mount namespace replaces: it is built with a
module of that name of our own, which reads the same from sysfs (``go/rdma-shared/netlink``).
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.tools.capture.archive import unpack
from tests.conftest import NODES
from tests.lab.go_program import GoPrograms
from tests.lab.namespace import KUBELET_DIR, required_flags
from tests.lab.node_agent import NodeAgent
from tests.lab.nvidia.desk import Kubelet
from tests.lab.processes import Processes, Program
from tests.lab.waiting import tail, wait_for

_PLUGIN = "k8s-rdma-shared-dp"
_NAME = "desk-shared"
_STARTED = "All servers started."

PROGRAMS = GoPrograms(
    shelf="nightly",
    title="k8s-rdma-shared-dev-plugin v1.5.3",
    module=Path(__file__).parent / "go" / "rdma-shared",
    packages={_PLUGIN: f"github.com/Mellanox/k8s-rdma-shared-dev-plugin/cmd/{_PLUGIN}"},
)

_PCI_IDS = "C 02  Network controller\n"
"""What its library takes names of PCI ids from; it looks for no other file (``PCIDB_PATH``)."""


class Offered(Struct, frozen=True, kw_only=True):
    """One resource of a plugin.

    Attributes:
        devices: ascending by id.
        nodes: what a container with the first healthy device is given below ``/dev/infiniband``,
            each with its permissions; none without such a device.
    """

    devices: tuple[PluginDevice, ...]
    nodes: frozenset[tuple[str, str]]

    @property
    def names(self) -> frozenset[str]:
        """The names of the nodes."""
        return frozenset(name for name, _ in self.nodes)


class RdmaDesk:
    """The machine of a directory of ``tests/nodes`` below *home*, a short path."""

    def __init__(self, home: Path, shape: str) -> None:
        self._home = home
        self._host = home / "host"
        self._processes = Processes(home)
        unpack((NODES / shape / "sysfs.txt").read_text("utf-8"), self._host)
        _complete(self._host)
        (home / "pci.ids").write_text(_PCI_IDS, "ascii")
        self._ours = NodeAgent(
            "desk",
            NODES / shape,
            home=home,
            host=self._host,
            kubeconfig=home / "none",
            processes=self._processes,
        )
        self._socket_dir = self._ours.socket_dir
        self._socket_dir.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """End every process."""
        self._processes.stop_all()

    def theirs(self, pools: Sequence[Mapping[str, Any]]) -> Mapping[str, Offered]:
        """Return what the shared plugin offers of *pools*, by resource."""
        with Kubelet(self._socket_dir) as kubelet:
            program = self._start(json.dumps({"configList": list(pools)}))
            log = self._processes.log_dir / f"{_NAME}.log"
            try:
                with _listed(kubelet, _names(pools), program.check_running, lambda: tail(log)):
                    return {name: _offered(kubelet, name) for name in _names(pools)}
            finally:
                self._end(program)

    def refusal(self, text: str) -> str | None:
        """Return what the shared plugin says against the file *text*; ``None`` if it starts."""
        log = self._processes.log_dir / f"{_NAME}.log"
        start = log.stat().st_size if log.exists() else 0
        with Kubelet(self._socket_dir):
            program = self._start(text)

            def has_begun() -> bool:
                return not program.is_running or _STARTED in log.read_text("utf-8")[start:]

            try:
                wait_for("the plugin starts or ends", has_begun, evidence=lambda: tail(log))
                return None if program.is_running else log.read_text("utf-8")[start:].strip()
            finally:
                self._end(program)

    def ours(self, pools: Sequence[Mapping[str, Any]]) -> Mapping[str, Offered]:
        """Return what our daemon offers of *pools*, by resource."""
        text = json.dumps({"configList": list(pools)})
        with Kubelet(self._socket_dir) as kubelet:
            flags = ["--rdma-config", str(self._config(text)), "--offer-gpus", "never"]
            self._ours.start([*flags, "--no-publish-labels"])
            try:
                said = self._ours.log_since_start
                wait_for("our daemon says what it offers", lambda: _said(said()), evidence=said)
                resources = _said(said())
                with _listed(kubelet, resources, self._ours.check_running, said):
                    return {name: _offered(kubelet, name) for name in resources}
            finally:
                self._ours.stop()

    def _start(self, text: str) -> Program:
        """Start the shared plugin with the file *text*."""
        return self._processes.start(
            _NAME,
            [PROGRAMS.folder() / _PLUGIN, f"--config-file={self._config(text)}"],
            prefix=self._entering(),
            environment={"PCIDB_PATH": str(self._home / "pci.ids")},
        )

    def _end(self, program: Program) -> None:
        """End the shared plugin at once: asked to, it waits for each of its pools."""
        self._processes.kill(program)
        for socket in self._socket_dir.glob("*.sock"):
            socket.unlink()

    def _config(self, text: str) -> Path:
        path = self._home / "config.json"
        path.write_text(text, "utf-8")
        return path

    def _entering(self) -> tuple[str, ...]:
        """Return the command prefix that shows it the machine and no other kubelet's sockets."""
        plugins = KUBELET_DIR / "device-plugins"
        lines = ["set -e", _bind(self._host / "sys", Path("/sys"))]
        lines += ["mount -t tmpfs lab /var/lib", f"mkdir -p {plugins}"]
        lines += [_bind(self._socket_dir, plugins)]
        lines += [f"mount --rbind {shlex.quote(str(self._host / 'dev'))} /dev", 'exec "$@"']
        return ("unshare", *required_flags(), "sh", "-c", "\n".join(lines), "nightly")


def _names(pools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{pool.get('resourcePrefix') or 'rdma'}/{pool['resourceName']}" for pool in pools]


def _said(log: str) -> list[str]:
    """Return the resources that our daemon last said to offer; none before it has."""
    events = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    said = [event["resources"] for event in events if event["event"] == "resources offered"]
    return list(said[-1]) if said else []


@contextmanager
def _listed(
    kubelet: Kubelet,
    resources: Sequence[str],
    check_running: Callable[[], None],
    evidence: Callable[[], str],
) -> Iterator[None]:
    """Wait until the plugin has sent its list of each of *resources*."""

    def have_come() -> bool:
        check_running()
        return all(kubelet.view(name) is not None for name in resources)

    wait_for(f"{sorted(resources)} are listed", have_come, evidence=evidence)
    yield


def _offered(kubelet: Kubelet, resource: str) -> Offered:
    devices = kubelet.devices(resource) or ()
    free = [device.id for device in devices if device.is_healthy]
    nodes: frozenset[tuple[str, str]] = frozenset()
    if free:
        answer = kubelet.answer(resource, free[:1])
        assert answer is not None, f"{resource}: refused"
        assert all(inside == outside for inside, outside, _ in answer.nodes)
        nodes = frozenset(
            (path.removeprefix("/dev/infiniband/"), access) for path, _, access in answer.nodes
        )
    return Offered(devices=devices, nodes=nodes)


def _complete(host: Path) -> None:
    """Add what that plugin reads of a machine and no other program of the tests does."""
    for function in (host / "sys" / "bus" / "pci" / "devices").iterdir():
        (function / "modalias").write_text(_modalias(function), "ascii")
    (host / "sys" / "class" / "misc" / "rdma_cm").mkdir(parents=True, exist_ok=True)
    (host / "dev" / "infiniband").mkdir(parents=True, exist_ok=True)
    (host / "dev" / "infiniband" / "rdma_cm").touch()
    (host / "dev" / "null").touch()


def _modalias(function: Path) -> str:
    """Return the alias of a PCI function (kernel, drivers/pci/pci-sysfs.c, modalias_show)."""

    def number(name: str) -> int:
        path = function / name
        return int(path.read_text("ascii"), 16) if path.exists() else 0

    kind = number("class")
    ids = f"v{number('vendor'):08X}d{number('device'):08X}"
    board = f"sv{number('subsystem_vendor'):08X}sd{number('subsystem_device'):08X}"
    return f"pci:{ids}{board}bc{kind >> 16:02X}sc{kind >> 8 & 255:02X}i{kind & 255:02X}\n"


def _bind(source: Path, place: Path) -> str:
    return f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(place))}"
