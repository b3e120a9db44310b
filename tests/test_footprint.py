"""What the daemon and its NVML child load, and what they put off."""

import gc
import json
import os
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nodetopo import footprint
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.generous_deadlines import use_generous_deadlines
from tests.lab.go_program import user_cache

__all__ = ["use_generous_deadlines"]

ROOT = Path(__file__).parents[1]
MACHINE = ROOT / "tests" / "nodes" / "h100x8-nvswitch-2numa-8cx7"
TIMEOUT_S = 120.0

DAEMON_LIBRARIES = {
    *("grpc", "google", "typing_extensions"),  # the device plugin API and PodResources
    *("urllib3", "prometheus_client", "structlog", "yaml"),
    "psutil",  # the audit
    "msgspec",
}
CHILD_LIBRARIES = {"pynvml", "msgspec"}

CHILD_STANDARD = {
    *("collections", "contextlib", "copy", "ctypes", "datetime", "decimal", "enum", "functools"),
    *(
        "gc",
        "importlib",
        "itertools",
        "json",
        "math",
        "numbers",
        "os",
        "platform",
        "queue",
        "re",
        "string",
    ),
    *("struct", "sys", "threading", "time", "types", "typing", "uuid", "warnings"),
}
DAEMON_STANDARD = CHILD_STANDARD | {
    *("argparse", "array", "ast", "base64", "bisect", "bz2", "calendar", "concurrent"),
    *("contextvars", "copyreg", "csv", "dataclasses", "email", "errno", "fcntl", "fnmatch"),
    *("gettext", "glob", "gzip", "hashlib", "heapq", "hmac", "http", "inspect", "io"),
    *("ipaddress", "linecache", "locale", "logging", "lzma", "mimetypes", "mmap", "numbers"),
    *("opcode", "pathlib", "pickle", "pkgutil", "platform", "posixpath", "pwd", "quopri"),
    *("random", "reprlib", "resource", "secrets", "select", "selectors", "shlex", "signal"),
    *("socket", "socketserver", "ssl", "stat", "stringprep", "subprocess", "tempfile"),
    *("textwrap", "timeit", "token", "tokenize", "tomllib", "traceback", "unicodedata", "urllib"),
    *("weakref", "wsgiref", "zipfile", "zlib"),
}
"""What they name, and what that imports in the running version of Python."""

DAEMON_PACKAGES = {
    "__main__",
    *("admission", "allocation", "backoff", "checks", "cli", "components"),
    *("deviceplugin", "errors", "footprint", "formats", "kernel", "kubeapi", "machines", "model"),
    *("nccl", "outage", "pages", "probes", "rdma", "topology"),
}
DAEMON_COMMANDS = {*("files", "flags", "kubeconfig", "main", "output", "parser", "run", "settings")}
"""Modules of nodetopo.cli."""

CHILD_MODULES = {
    *("errors", "footprint"),
    *("model", "model.gpu", "model.numa", "model.nvlink", "model.nvml_event", "model.pci"),
    *("model.digits", "model.limits", "model.plain", "model.probe_issue"),
    *("probes", "probes.nvml"),
    *(
        f"probes.nvml.{name}"
        for name in ("__main__", "child", "events", "gpu", "library", "links", "reading")
    ),
    *(f"probes.nvml.{name}" for name in ("record", "recorder", "session", "tally", "values")),
}

EVERYTHING = (
    *("--measure-pods", "--publish-pod-events", "--explain-rejections", "--audit-node"),
    *("--publish-zones", "--annotate-pods", "--nccl-hints", "--topology-levels=auto"),
)

OFF = {
    *("admission", "probes.pods.manifest", "components.audit.rejections_loop"),
    *("components.dra.loop", "components.rdma.plan", "components.rdma.joint"),
    *("components.zones.component",),
    *("deviceplugin.cdi_writer", "deviceplugin.driver_files", "nccl.xml"),
}
"""Modules of features that no default setting turns on."""

WRITE = """
import atexit, json, sys
output = sys.argv.pop(1)
def write():
    absent = "_Deferred", "NoneType"
    loaded = [name for name, it in sys.modules.items() if type(it).__name__ not in absent]
    with open(output, "w") as file:
        json.dump(loaded, file)
atexit.register(write)
# Not in the image: what structlog and grpc import where they can.
for name in ("rich", "better_exceptions", "colorama", "grpc_tools"):
    sys.modules[name] = None
"""
DAEMON = f"""{WRITE}
from pathlib import Path
from nodetopo.probes.host import service_account
service_account.DIRECTORY = Path(sys.argv.pop(1))
from nodetopo.__main__ import main
sys.exit(main())
"""
CHILD = f"""{WRITE}
import nodetopo.probes.nvml.__main__
"""


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which Python finds the packages without running .pth files."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT / "agent"), *site.getsitepackages()]),
        **more,
    }


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml", (MACHINE / "nvml.txt").read_text("utf-8"))


def of_standard_library(names: set[str]) -> set[str]:
    """Return the top-level modules that a bare interpreter has after importing *names*."""
    program = f"import sys\nfor name in {sorted(names)}: __import__(name)\nprint(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in shown.stdout.split()}


def libraries(loaded: set[str]) -> set[str]:
    """Return the top-level modules of *loaded* that are neither Python's nor ours."""
    tops = {name.partition(".")[0] for name in loaded}
    known = sys.stdlib_module_names | {"nodetopo", "__main__", "cython_runtime"}
    return {top for top in tops - known if not top.startswith(("_cython_", "_yaml", "_distutils"))}


def standard(loaded: set[str]) -> set[str]:
    """Return the public top-level modules of *loaded* that are Python's."""
    tops = {name.partition(".")[0] for name in loaded}
    names = {top for top in tops & sys.stdlib_module_names if not top.startswith("_")}
    return names - {"atexit"}  # of WRITE


@contextmanager
def daemon(
    tmp_path: Path, nvml: FakeNvml, loaded: Path, features: tuple[str, ...]
) -> Iterator[list[dict[str, Any]]]:
    """Run a daemon with *features* and an API server that does not answer; yield its log."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "ca.crt").write_text("none")
    sockets = tmp_path / "s"
    sockets.mkdir()
    kubelet = FakeKubelet(sockets)
    command = [
        *(sys.executable, "-S", "-c", DAEMON, str(loaded), str(account), "run", *features),
        *("--device-list-strategy=envvar", "--log-format=json", "--metrics-address=127.0.0.1:0"),
        *("--node-name=n", f"--device-plugin-dir={sockets}", f"--host-root={tmp_path}"),
        f"--nvml-library={library(user_cache())}",
        f"--health-file={tmp_path / 'health.json'}",
        f"--nccl-hints-dir={tmp_path / 'nccl'}",
    ]
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(NODETOPO_FAKE_NVML=str(nvml.directory), **pod),
    )

    def lines() -> Iterator[dict[str, Any]]:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("{"):
                yield json.loads(line)
            else:  # gRPC's core logs on its own, of slow connections for one
                print(line, end="")

    try:
        yield lines()  # type: ignore[misc]
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        kubelet.stop()


def test_the_daemon_loads_what_it_needs_and_nothing_else(tmp_path: Path, nvml: FakeNvml) -> None:
    written = tmp_path / "modules"
    wanted = {"resource registered", "rejected pods not watched"}
    with daemon(tmp_path, nvml, written, EVERYTHING) as log:
        for line in log:
            wanted.discard(line["event"])
            if not wanted:
                break
        assert not wanted
        time.sleep(2)  # the loops that start together with the watch of rejected pods
    loaded = set(json.loads(written.read_text()))
    assert libraries(loaded) == DAEMON_LIBRARIES
    assert standard(loaded) <= of_standard_library(DAEMON_STANDARD)
    own = {name.split(".")[1] for name in loaded if name.startswith("nodetopo.")}
    assert own <= DAEMON_PACKAGES
    commands = {name.split(".")[2] for name in loaded if name.startswith("nodetopo.cli.")}
    assert commands <= DAEMON_COMMANDS
    assert {
        "nodetopo.components.audit.alignment.rules",
        "urllib3.poolmanager",
        "grpc._server",
    } <= loaded
    assert not {"asyncio", "grpc.aio", "kubernetes", "pynvml"} & loaded
    assert not {"nodetopo.probes.nvml.reading", "nodetopo.deviceplugin.fake_kubelet"} & loaded


def test_a_daemon_with_default_settings_loads_no_feature_that_is_off(
    tmp_path: Path, nvml: FakeNvml
) -> None:
    written = tmp_path / "modules"
    with daemon(tmp_path, nvml, written, ()) as log:
        assert any(line["event"] == "node audited" for line in log)
    loaded = set(json.loads(written.read_text()))
    assert "nodetopo.components.audit.loop" in loaded
    assert not {f"nodetopo.{name}" for name in OFF} & loaded
    for name in OFF:
        assert find_spec(f"nodetopo.{name}") is not None


def test_components_that_start_at_once_load_no_library_of_metrics() -> None:
    program = (
        "import sys\n"
        "from nodetopo.kernel import app\n"
        "from nodetopo.kernel.component import Start\n"
        "from nodetopo.kernel.components import COMPONENTS, part, terms_of\n"
        "first = [name for name in COMPONENTS if terms_of(name).START is Start.AT_ONCE]\n"
        "assert first\n"
        "for name in first: part(name, 'component')\n"
        "print(*{'prometheus_client', 'http', 'email'} & sys.modules.keys())"
    )
    command = [sys.executable, "-S", "-c", program]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment(), timeout=TIMEOUT_S
    )
    assert shown.stdout.split() == []


def test_the_nvml_child_loads_what_it_needs_and_nothing_else(
    tmp_path: Path, nvml: FakeNvml
) -> None:
    written = tmp_path / "modules"
    driver = library(user_cache()) / "libnvidia-ml.so.1"
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write):
        shown = subprocess.run(
            [sys.executable, "-S", "-P", "-c", CHILD, str(written), str(driver), str(write)],
            input="scan\nrefresh\nrecord\n",
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
            pass_fds=(write,),
            env=environment(NODETOPO_FAKE_NVML=str(nvml.directory)),
        )
    assert ["ok" in json.loads(line) for line in shown.stdout.splitlines()] == [True] * 3
    loaded = set(json.loads(written.read_text()))
    assert libraries(loaded) == CHILD_LIBRARIES
    assert standard(loaded) <= of_standard_library(CHILD_STANDARD)
    own = {name.removeprefix("nodetopo.") for name in loaded if name.startswith("nodetopo.")}
    assert own == CHILD_MODULES


def test_a_module_that_is_put_off_becomes_real_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later.py").write_text("class Thing: pass\nname = __name__\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "later", raising=False)
    footprint.put_off(["later"])
    import later  # type: ignore[import-not-found]  # noqa: PLC0415

    stand_in = sys.modules["later"]
    assert stand_in is later
    assert "Thing" not in vars(later)
    thing = later.Thing
    assert sys.modules["later"] is not stand_in
    assert thing is sys.modules["later"].Thing
    assert later.name == "later"
    with pytest.raises(AttributeError, match="nothing"):
        _ = later.nothing
    monkeypatch.delitem(sys.modules, "later")


def test_a_part_of_a_package_that_is_put_off_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "__init__.py").write_text("")
    (tmp_path / "whole" / "part.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    footprint.put_off(["whole"])
    from whole.part import value  # type: ignore[import-not-found]  # noqa: PLC0415

    assert value == 7
    for name in ("whole", "whole.part"):
        monkeypatch.delitem(sys.modules, name)


def test_a_module_that_is_there_is_not_put_off() -> None:
    footprint.put_off(["json"])
    assert sys.modules["json"] is json


@pytest.mark.parametrize("name", sorted(footprint.DEFERRED))
def test_each_module_that_is_put_off_can_still_be_used(name: str) -> None:
    program = (
        "from nodetopo.footprint import stay_small; stay_small()\n"
        "import sys, grpc, structlog, http.server, tempfile\n"
        "from google.protobuf import descriptor_pool\n"
        f"import {name}\n"
        f"stand_in = sys.modules[{name!r}]\n"
        "assert type(stand_in).__name__ == '_Deferred', stand_in\n"
        "stand_in.__dir__; dir(stand_in); stand_in.__doc__\n"
        "try: stand_in.no_such_name\n"
        "except AttributeError: pass\n"
        f"assert type(sys.modules[{name!r}]).__name__ == 'module'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=TIMEOUT_S)


def test_another_libc_has_no_such_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "_LIBC", object())
    monkeypatch.setattr(footprint, "put_off", lambda _: None)
    monkeypatch.setattr(gc, "disable", lambda: None)  # it would stay so for later tests
    footprint.stay_small()
    footprint.give_back()
