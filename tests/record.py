"""Record what a user sees on every bundled machine: ``python -m tests.record FOLDER``.

Compare the folders of two checkouts with ``diff -r``: a change of structure leaves them equal. The
folder has the answers of the commands, their help, the settings, the daemon's metrics and status,
and the renderings of chart and kustomize. Times, counters, sizes and the checkout's path are
masked.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from nodetopo.cli.main import COMMANDS
from nodetopo.machines import bundled
from tests.deploy.kustomize import render
from tests.lab.control_plane import free_port
from tests.lab.helm.chart import CHART, helm

ROOT = Path(__file__).parents[1]
DAEMONSET = ROOT / "deploy" / "daemonset"

ANSWERS = {
    "labels": ("labels", "-o", "json"),
    "health": ("health", "-o", "json"),
    "audit": ("audit", "-o", "json"),
    "audit.txt": ("audit",),
    "matrix.txt": ("topo", "matrix"),
    "tree.txt": ("topo", "tree"),
    "complexes": ("topo", "complexes", "-o", "json"),
    "allocate-1.txt": ("allocate", "--size", "1", "--explain"),
    "allocate-2": ("allocate", "--size", "2", "-o", "json"),
    "allocate-4.txt": ("allocate", "--size", "4", "--explain"),
    "nccl-env": ("nccl", "env", "-o", "json"),
    "nccl-xml": ("nccl", "xml"),
    "admit.txt": ("admit", "--policy", "single-numa-node", "--manifest", "-"),
}

POD = """
kind: Pod
apiVersion: v1
metadata: {name: pod}
spec:
  containers:
    - name: work
      image: image
      resources:
        limits: {nvidia.com/gpu: 2, cpu: 16, memory: 64Gi}
"""

ONCE = {
    "explain": ("explain", "--all", "-o", "json"),
    "settings": ("run", "--print-config"),
    "machines": ("simulate", "machines", "-o", "json"),
    **{
        f"export-{what}": ("export", "--for", what, "--cluster", "nvl72")
        for what in ("kai", "kueue", "volcano", "slurm", "topograph", "lws")
    },
    "doctor": ("doctor", "--cluster", "nvl72", "-o", "json"),
}

CHARTS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    **{path.stem: ("--values", str(path)) for path in sorted((CHART / "ci").glob("*-values.yaml"))},
}

_VARYING = re.compile(
    r"^((?:process|python)_\S+|\S*(?:_seconds|_bytes|_total|_count|_sum|_bucket|_created)"
    r"(?:\{.*\})?) \S+$",
    re.MULTILINE,
)
_SOCKETS = re.compile(r"-\d+-[0-9a-f]{8}\.sock")
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| UTC)?")


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1])
    for name, text in _files():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        masked = _SOCKETS.sub("-PID.sock", _TIMES.sub("TIME", text))
        path.write_text(masked.replace(str(ROOT), "ROOT"), "utf-8")
        print(name, file=sys.stderr)


def _files() -> Iterator[tuple[str, str]]:
    for command in COMMANDS:
        yield f"help/{command.name}", _answer((command.name, "--help"))
    for name in ("run", "allocate", "audit", "admit"):
        yield f"help/{name}-all", _answer((name, "--help-all"))
    for name, words in ONCE.items():
        yield f"once/{name}", _answer(words)
    for folder in sorted((DAEMONSET / "overlays").iterdir()):
        yield f"kustomize/{folder.name}", yaml.safe_dump_all(render(folder))
    for folder in sorted((DAEMONSET / "components").iterdir()):
        objects = render(DAEMONSET, folder)
        yield f"kustomize/with-{folder.name}", yaml.safe_dump_all(objects)
    for name, words in CHARTS.items():
        done = helm("template", "nodetopo", CHART, "--namespace", "nodetopo", *words)
        yield f"chart/{name}", done.stdout + done.stderr
    for machine in bundled.names():
        for name, words in ANSWERS.items():
            yield f"{machine}/{name}", _answer((*words, "--machine", machine))
        metrics, status = _served(machine)
        yield f"{machine}/metrics", _VARYING.sub(r"\1 VALUE", metrics)
        # The embedded kubelet allocates all the time.
        shown = json.loads(status)
        del shown["allocations"]
        yield f"{machine}/status.json", json.dumps(shown, indent=2)


def _answer(words: tuple[str, ...]) -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "NODE_NAME": "node"}
    done = subprocess.run(
        [sys.executable, "-m", "nodetopo", *words],
        env=environment,
        capture_output=True,
        text=True,
        input=POD,
        check=False,
        timeout=300,
    )
    return f"{done.stdout}{done.stderr}exit {done.returncode}\n"


def _served(machine: str) -> tuple[str, str]:
    """Return the metrics and the status of a daemon of *machine* that has judged its checks."""
    address = f"127.0.0.1:{free_port()}"
    words = ("--machine", machine, "--metrics-address", address, "--node-name", "node")
    with subprocess.Popen(
        [sys.executable, "-m", "nodetopo", "run", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as daemon:
        try:
            while daemon.poll() is None:
                try:
                    metrics = _get(f"http://{address}/metrics")
                except (URLError, OSError):
                    metrics = ""
                if 'report="audit"' in metrics and 'report="health"' in metrics:
                    return _get(f"http://{address}/metrics"), _get(f"http://{address}/status.json")
                sleep(0.2)
        finally:
            daemon.terminate()
    raise SystemExit(f"the daemon of {machine} ended with {daemon.returncode}")


def _get(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    main()
