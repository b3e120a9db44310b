"""What runs on a composed host beside the kernel: processes, and what they are configured by.

Files: kernel fs/proc/{base,array}.c, containerd docs/cri/config.md, NVIDIA Container Toolkit
config.toml, Container Device Interface SPEC.md.
"""

import json
from collections.abc import Iterator

from nodetopo.model.cdi import CdiSpec
from nodetopo.model.host import ContainerToolkit, HostSettings, RuntimeConfig, RuntimeProcess
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.archive import Entry
from tests.compose.entries import file
from tests.compose.host_settings import device_names
from tests.compose.kubelet import SOURCE
from tests.probes.process_files import stat_line

_PIDS = {"nv-fabricmanager": 1403, "containerd": 1617, "kubelet": 2048}
_TOOLKIT = "nvidia-container-runtime"
_LIBRARIES = {
    "x86_64": "usr/lib/x86_64-linux-gnu",
    "aarch64": "usr/lib/aarch64-linux-gnu",
    "ppc64le": "usr/lib64",
}


def entries(snapshot: Snapshot) -> Iterator[Entry]:
    """Yield the processes of the node and the files that they read."""
    host, kernel = snapshot.host, snapshot.kernel
    assert host is not None
    assert kernel is not None
    assert kernel.machine is not None
    yield from _processes(host)
    for config in host.runtime_configs or ():
        yield file(config.path.lstrip("/"), _containerd(config))
    if host.toolkit is not None:
        yield from _toolkit(host.toolkit, _LIBRARIES[kernel.machine])
    for spec in host.cdi_specs or ():
        yield Entry(path="usr/bin")
        yield file(f"{_LIBRARIES[kernel.machine]}/libcuda.so.{spec.driver_version}", "")
        yield file(spec.path.lstrip("/"), _cdi(spec, snapshot, _LIBRARIES[kernel.machine]))


def _processes(host: HostSettings) -> Iterator[Entry]:
    flags = f"--kubeconfig=/etc/kubernetes/kubelet.conf --config={SOURCE}"
    yield from _command("kubelet", f"/usr/bin/kubelet {flags}")
    if host.fabric_manager:
        configuration = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
        yield from _command("nv-fabricmanager", f"/usr/bin/nv-fabricmanager -c {configuration}")
    for runtime in host.runtimes or ():
        yield from _command(runtime.name, f"/usr/bin/{runtime.name}")
        yield file(f"proc/{_PIDS[runtime.name]}/limits", _limits(runtime))


def _command(name: str, words: str) -> Iterator[Entry]:
    line = "".join(f"{word}\0" for word in words.split())
    yield Entry(path=f"proc/{_PIDS[name]}/cmdline", content=line.encode())
    yield file(f"proc/{_PIDS[name]}/stat", stat_line(_PIDS[name], name))


def _limits(runtime: RuntimeProcess) -> str:
    lines = [("Limit", "Soft Limit", "Hard Limit", "Units")]
    for name, soft, hard, unit in (
        ("Max open files", 1024, runtime.open_files, "files"),
        ("Max locked memory", runtime.memlock_bytes, runtime.memlock_bytes, "bytes"),
    ):
        lines.append((name, _limit(soft), _limit(hard), unit))
    return "\n".join(
        f"{name:<26}{soft:<21}{hard:<21}{unit:<10}" for name, soft, hard, unit in lines
    )


def _limit(value: int | None) -> str:
    return "unlimited" if value == -1 else str(value)


def _containerd(config: RuntimeConfig) -> str:
    runtimes = "plugins.'io.containerd.cri.v1.runtime'.containerd"
    lines = ["version = 3", f"[{runtimes}]", f"default_runtime_name = '{config.default_runtime}'"]
    for name in config.nvidia_runtimes:
        options = f"[{runtimes}.runtimes.{name}.options]"
        lines += [options, f"BinaryName = '/usr/bin/{_TOOLKIT}'"]
    return "\n".join(lines)


def _toolkit(toolkit: ContainerToolkit, libraries: str) -> Iterator[Entry]:
    stated = toolkit.env_when_unprivileged
    lines = [f'["{_TOOLKIT}"]', f'mode = "{toolkit.mode}"']
    if stated is not None:
        word = "true" if stated else "false"
        lines.insert(0, f"accept-nvidia-visible-devices-envvar-when-unprivileged = {word}")
    yield file(toolkit.path.lstrip("/"), "\n".join(lines))
    library = f"{libraries}/libnvidia-container.so.1"
    yield Entry(path=library, target=f"libnvidia-container.so.{toolkit.version}")


def _cdi(spec: CdiSpec, snapshot: Snapshot, libraries: str) -> str:
    """Return the specification as JSON, which is YAML too."""
    nodes = {
        name: [f"/dev/nvidia{gpu.minor}"] for gpu in snapshot.gpus for name in device_names(gpu)
    }
    nodes["all"] = [f"/dev/nvidia{gpu.minor}" for gpu in snapshot.gpus]
    library = f"/{libraries}/libcuda.so.{spec.driver_version}"
    document = {
        "cdiVersion": "0.5.0",
        "kind": spec.kind,
        "devices": [
            {
                "name": name,
                "containerEdits": {"deviceNodes": [{"path": path} for path in nodes[name]]},
            }
            for name in spec.devices
        ],
        "containerEdits": {
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "mounts": [{"hostPath": library, "containerPath": library}],
        },
    }
    return json.dumps(document, separators=(",", ":"))
