"""``scripts/lab``: the lab without tests, to look at and to try things on."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from tests.lab.build import binaries
from tests.lab.cluster import Cluster
from tests.lab.go_program import user_cache
from tests.lab.kubelet import Policies
from tests.lab.namespace import unshare_flags
from tests.lab.pods import GPU
from tests.lab.processes import end_recorded, recorded

_NODES = (
    ("h100", "h100x8-nvswitch-2numa-8cx7", Policies()),
    ("v100", "v100x8-cubemesh-2numa-4cx4", Policies(topology="none")),
)


def main() -> int:
    """Do what the command line asks; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/lab", description=__doc__)
    commands = {"up": _up, "down": _down, "status": _status, "build": _build}
    parser.add_argument("command", choices=commands)
    return commands[parser.parse_args().command]()


def _up() -> int:
    """Start the cluster and its nodes, and leave them running."""
    if unshare_flags() is None:
        return _refuse("neither root nor user namespaces here", "run it as root")
    if _run_dir() is not None:
        return _refuse("a lab is up already", "scripts/lab status, scripts/lab down")
    cluster = Cluster(is_detached=True)
    _pointer().write_text(json.dumps({"run_dir": str(cluster.run_dir)}), "utf-8")
    try:
        _start(cluster)
    except BaseException:
        cluster.stop()
        _pointer().unlink()
        raise
    print(f"the lab is up: kubeconfig {cluster.kubeconfig}")
    print(f"  logs    {cluster.run_dir / 'logs'}")
    print(f"  try     KUBECONFIG={cluster.kubeconfig} kubectl get nodes --show-labels")
    print("  end     scripts/lab down")
    return 0


def _start(cluster: Cluster) -> None:
    _say("starting etcd, kube-apiserver and kube-scheduler")
    cluster.start()
    for name, shape, policies in _NODES:
        _say(f"starting node {name}: {shape}, topology manager policy {policies.topology}")
        node = cluster.add_node(name, shape, policies=policies)
        node.agent.start()
        node.wait_allocatable(GPU, 8)


def _down() -> int:
    """End what ``up`` started."""
    run_dir = _run_dir()
    if run_dir is None:
        print("no lab is up")
        return 0
    ended = end_recorded(run_dir)
    shutil.rmtree(run_dir, ignore_errors=True)
    _pointer().unlink()
    print(f"ended {', '.join(ended) or 'nothing: all had ended'}")
    return 0


def _status() -> int:
    """List the programs; exit 1 if one is missing or there is no lab."""
    run_dir = _run_dir()
    if run_dir is None:
        print("no lab is up")
        return 1
    programs = recorded(run_dir)
    for name, pid, is_running in programs:
        print(f"{name:<16} {pid:>8}  {'running' if is_running else 'ended'}")
    print(f"kubeconfig {run_dir / 'admin.kubeconfig'}")
    return 0 if all(is_running for _, _, is_running in programs) else 1


def _build() -> int:
    print(binaries())
    return 0


def _pointer() -> Path:
    """Return the file that says where the lab of this user is."""
    path = user_cache() / "lab" / "up.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _run_dir() -> Path | None:
    """Return the running lab's directory; one that a reboot emptied counts as none."""
    if not _pointer().exists():
        return None
    found = Path(json.loads(_pointer().read_text("utf-8"))["run_dir"])
    return found if (found / "processes.json").exists() else None


def _refuse(cause: str, cure: str) -> int:
    print(f"error: {cause} — {cure}", file=sys.stderr)
    return 3


def _say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
