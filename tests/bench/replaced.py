"""Memory of the programs that nodetopo replaces: ``python -m tests.bench.replaced [NFD_WORKER]``.

NVIDIA's device plugin and GPU Feature Discovery, built from the Go proxy as the lab builds them, on
the fake machine of :mod:`tests.bench.footprint_lab`, which measures nodetopo. NFD's worker is
measured, without publishing, if the path of the program is given: `go install` cannot build it.
Needs root, as the lab does.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodetopo.model.kubernetes import GPU_RESOURCE
from tests.bench.footprint_lab import SHAPE, Process, process_of
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.lab.go_program import user_cache
from tests.lab.nvidia.build import DISCOVERY, programs
from tests.lab.nvidia.cases import Case
from tests.lab.nvidia.desk import Desk
from tests.lab.nvidia.machines import of_shape

SETTLED_S = 30.0
"""After the start: GFD and the worker have written their labels, the plugin is registered."""


_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: none, user: {}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
"""
"""The worker wants one, although it publishes nothing."""


def main(arguments: Sequence[str]) -> None:
    """Print a line for each program: resident and private memory in MiB."""
    worker = Path(arguments[0]) if arguments else None
    with tempfile.TemporaryDirectory(prefix="nt-") as folder:
        home = Path(folder)
        print(f"{'':28}{'resident':>10}{'private':>10}")
        for name, process in measure(home, worker):
            print(f"{name:28}{process.resident:10.1f}{process.private:10.1f}", flush=True)


def measure(home: Path, worker: Path | None) -> Iterator[tuple[str, Process]]:
    """Yield the name and the cost of each program, one after another."""
    desk = Desk(home / "d", of_shape(SHAPE))
    try:
        config = Case(machine="", amounts={GPU_RESOURCE: 8}).config
        with desk.with_nvidia(config, [GPU_RESOURCE]):
            program = desk.nvidia._program
            assert program is not None
            time.sleep(SETTLED_S)
            yield "NVIDIA's device plugin", process_of(program.process.pid)
    finally:
        desk.close()
    nvml = FakeNvml(home / "nvml", of_shape(SHAPE).nvml)
    variables = {
        "NODETOPO_FAKE_NVML": str(nvml.directory),
        "LD_LIBRARY_PATH": str(library(user_cache())),
    }
    discovery = (
        str(programs() / DISCOVERY),
        "--use-node-feature-api=false",
        f"--output-file={home / 'gfd'}",
    )
    with running(discovery, variables) as pid:
        yield "GPU Feature Discovery", process_of(pid)
    if worker is not None:
        kubeconfig = home / "kubeconfig"
        kubeconfig.write_text(_KUBECONFIG, "utf-8")
        flags = ("-no-publish", "-no-owner-refs", f"-kubeconfig={kubeconfig}")
        names = {"NODE_NAME": "n", "KUBERNETES_NAMESPACE": "n"}
        with running((str(worker), *flags), names) as pid:
            yield "NFD's worker", process_of(pid)


@contextmanager
def running(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[int]:
    """Run *command*, and yield its process once it has settled."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(SETTLED_S)
        assert process.poll() is None, f"{command[0]} ended with status {process.returncode}"
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    main(sys.argv[1:])
