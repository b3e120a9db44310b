"""The image: the Dockerfile carried out on Debian's files, and the agent run in it as on a node."""

import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

import nodetopo
from tests.fake_nvml.build import library
from tests.lab import deployment
from tests.lab.cluster import Cluster, run_parent
from tests.lab.control_plane import free_port
from tests.lab.go_program import user_cache
from tests.lab.image import RELEASE, ROOT, Tree, build, started
from tests.lab.machine_node import Node
from tests.lab.pods import GPU
from tests.lab.waiting import tail, wait_for

pytestmark = pytest.mark.lab

EPOCH = 1_700_000_000
LIMIT_BYTES = 120_000_000
TIMEOUT_S = 120
COUNT = "nvidia.com/gpu.count"
NVML = f"/usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1"
"""Where NVIDIA's runtime mounts it into a container of Debian."""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a directory in which overlayfs may write, whatever holds ``/tmp``."""
    home = Path(tempfile.mkdtemp(prefix="nt-", dir=run_parent()))
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def images(folder: Path) -> tuple[Tree, Tree]:
    """Return the image, built twice."""
    arguments = {"SOURCE_DATE_EPOCH": str(EPOCH)}
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda name: build(folder / name, arguments), ("one", "other"))
    return one, other


@pytest.fixture(scope="module")
def image(images: tuple[Tree, Tree]) -> Tree:
    """Return the image."""
    return images[0]


@pytest.fixture
def scratch(folder: Path) -> Iterator[Path]:
    """Return an empty directory beside the layers."""
    home = Path(tempfile.mkdtemp(dir=folder))
    yield home
    shutil.rmtree(home, ignore_errors=True)


def printed(
    image: Tree,
    scratch: Path,
    command: Sequence[str],
    *,
    mounts: Mapping[str, Path | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run *command* in the image in place of its entry point; return what it printed."""
    other = Tree(image.layers, image.environment, entrypoint=[*command])
    run = started(other, scratch, (), mounts=mounts or {}, environment=environment or {})
    return subprocess.run(run, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def files(layer: Path) -> dict[str, tuple[object, ...]]:
    """Return what a layer holds: kind and mode, owner, and content, by path."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(layer.rglob("*")):
        status = path.lstat()
        content = (
            str(path.readlink())
            if path.is_symlink()
            else sha256(path.read_bytes()).hexdigest()
            if stat.S_ISREG(status.st_mode)
            else status.st_rdev  # a removed file is a device 0/0
        )
        found[str(path.relative_to(layer))] = (
            stat.filemode(status.st_mode),
            status.st_uid,
            status.st_gid,
            content,
        )
    return found


def test_two_builds_make_the_same_files(images: tuple[Tree, Tree]) -> None:
    one, other = (files(image.layers[0]) for image in images)
    assert len(one) > 1000
    assert {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)} == set()


def test_every_file_has_the_time_that_the_build_was_given(images: tuple[Tree, Tree]) -> None:
    for image in images:
        ours = image.layers[0] / "opt/nodetopo"
        assert {path.lstat().st_mtime for path in (ours, *ours.rglob("*"))} == {EPOCH}


def test_the_image_adds_less_than_120_mb_to_its_base(image: Tree) -> None:
    (layer,) = image.layers[:-1]
    size = sum(path.lstat().st_blocks * 512 for path in layer.rglob("*"))
    assert size < LIMIT_BYTES
    page = (ROOT / "docs/operate/install.md").read_text("utf-8")
    (documented,) = re.findall(r"(\d+) MB unpacked beyond the base", page)
    assert abs(size / 1e6 - int(documented)) < 5, f"the page says {documented} MB, it is {size}"


def test_the_base_has_the_release_and_the_python_that_the_dockerfile_names(
    image: Tree, scratch: Path
) -> None:
    base = image.labels["org.opencontainers.image.base.name"]
    named = re.fullmatch(r"docker.io/library/python:(3\.\d+)\.\d+-slim-(\w+)@sha256:\w{64}", base)
    assert named, base
    code = "import platform; o = platform.freedesktop_os_release()['VERSION_CODENAME']; print(o)"
    done = printed(image, scratch, ["python3", "-IVc", "pass"])
    assert done.stdout.startswith(f"Python {named[1]}."), done
    done = printed(image, scratch, ["python3", "-Ic", code])
    assert (done.stdout.strip(), RELEASE) == (named[2], named[2])


def test_nothing_in_the_image_compiles_or_installs(image: Tree, scratch: Path) -> None:
    programs = "pip pip3 gcc cc c++ g++ clang tcc ld as make curl wget git"
    look = f"for name in {programs}; do command -v $name; done; true"
    assert printed(image, scratch, ["sh", "-c", look]).stdout == ""
    for module in ("pip", "ensurepip", "setuptools"):
        for python in ("python", "/usr/bin/python3"):
            done = printed(image, scratch, [python, "-m", module, "--version"])
            assert (done.returncode, f"No module named {module}" in done.stderr) == (1, True), done


def test_bytecode_of_all_modules_is_there(image: Tree) -> None:
    packages = next((image.layers[0] / "opt/nodetopo/lib").glob("python*/site-packages"))
    modules = [path for path in packages.rglob("*.py") if "-" not in path.parent.name]
    lacking = {path for path in modules if not list(path.parent.glob(f"__pycache__/{path.stem}.*"))}
    assert modules
    assert lacking == set()


@pytest.mark.parametrize("start", [["nodetopo"], []], ids=["program", "entry point"])
def test_the_environment_adds_no_module(image: Tree, scratch: Path, start: list[str]) -> None:
    hostile = scratch / "hostile"
    hostile.mkdir()
    for module in ("sitecustomize", "usercustomize", "structlog", "yaml", "nodetopo"):
        hostile.joinpath(f"{module}.py").write_text("import os; os._exit(66)\n")
    done = printed(
        image,
        scratch,
        [*(start or image.entrypoint), "version"],
        mounts={"/hostile": hostile},
        environment={
            "PYTHONPATH": "/hostile",
            "PYTHONSTARTUP": "/hostile/nodetopo.py",
            "PYTHONUSERBASE": "/hostile",
            "PYTHONINSPECT": "1",
        },
    )
    assert (done.returncode, nodetopo.__version__ in done.stdout) == (0, True), done


def test_the_root_cannot_be_written_to(image: Tree, scratch: Path) -> None:
    places = "/ /opt/nodetopo /etc /tmp"
    write = f"for place in {places}; do touch $place/x 2>/dev/null && echo $place; done; true"
    done = printed(image, scratch, ["sh", "-c", write], mounts={"/tmp": None})
    assert done.stdout.split() == ["/tmp"]


class Pod:
    """The DaemonSet's pod of a node, in the image."""

    def __init__(self, cluster: Cluster, node: Node, image: Tree, scratch: Path) -> None:
        cluster.control_plane.agent_kubeconfig()  # applies the account
        documents = deployment.manifests()
        (daemonset,) = (found for found in documents if found["kind"] == "DaemonSet")
        self._spec = daemonset["spec"]["template"]["spec"]
        (self._container,) = self._spec["containers"]
        self._node = node
        self._scratch = scratch
        self._image = image
        self._address = f"127.0.0.1:{free_port()}"
        self._server = cluster.api.url.removeprefix("https://").partition(":")
        account = scratch / "account"
        account.mkdir()
        token = deployment.service_account_token(cluster.api, documents)
        account.joinpath("token").write_text(token)
        account.joinpath("ca.crt").write_bytes(cluster.api.authority.read_bytes())
        self.log = scratch / "log"

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run it until the block ends, at the latest."""
        command = started(
            self._image,
            self._scratch,
            [*self._arguments(), f"--metrics-address={self._address}"],
            mounts=self._mounts(),
            environment=self._environment(),
        )
        with self.log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.kill()
            process.wait(TIMEOUT_S)

    def readiness(self) -> int | None:
        """Return the HTTP status of ``/readyz``; ``None`` while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/readyz", timeout=10) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def _variables(self) -> dict[str, str]:
        return {"NODE_NAME": self._node.name, "POD_IP": "127.0.0.1"}

    def _arguments(self) -> list[str]:
        expanded = []
        for argument in self._container["args"]:
            for name, value in self._variables().items():
                argument = argument.replace(f"$({name})", value)  # noqa: PLW2901
            expanded.append(argument)
        return expanded

    def _environment(self) -> dict[str, str]:
        host, _, port = self._server
        plain = {entry["name"]: entry.get("value", "") for entry in self._container["env"]}
        return {
            **plain,
            **self._variables(),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "NODETOPO_FAKE_NVML": "/fake-nvml",
        }

    def _mounts(self) -> dict[str, Path | None]:
        """Return the pod's mounts, with the simulated machine in place of the host."""
        volumes: dict[str, dict[str, Any]] = {
            found["name"]: found for found in self._spec["volumes"]
        }
        mounts: dict[str, Path | None] = {
            ACCOUNT: self._scratch / "account",
            NVML: library(user_cache()) / "libnvidia-ml.so.1",
            "/fake-nvml": self._node.agent.nvml_directory,
        }
        for mount in self._container["volumeMounts"]:
            source = volumes[mount["name"]]
            host = source.get("hostPath", {}).get("path")
            if host in ("/run/nodetopo", "/var/lib/nodetopo"):
                state = self._scratch / mount["name"]
                state.mkdir(exist_ok=True)
                mounts[mount["mountPath"]] = state
            elif host == "/dev/null":
                mounts[mount["mountPath"]] = Path(host)
            elif host is None:
                mounts[mount["mountPath"]] = None
            else:
                place = self._node.host / host.lstrip("/")
                if not place.exists() and "type" not in source["hostPath"]:
                    # As container runtimes do. Not on the node, which other tests use.
                    place = self._scratch / "made" / host.lstrip("/")
                    place.mkdir(parents=True, exist_ok=True)
                mounts[mount["mountPath"]] = place
        return mounts


def first_process(outside: subprocess.Popen[bytes]) -> int:
    """Return the container's first process, which ``unshare`` forked, by its id out here."""
    text = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text()
    (child,) = text.split()
    return int(child)


def test_the_agent_serves_its_node_from_the_image(
    cluster: Cluster, h100: Node, image: Tree, scratch: Path
) -> None:
    h100.agent.stop()
    path = f"/api/v1/nodes/{h100.name}"
    cluster.api.merge(path, {"metadata": {"labels": {COUNT: None}}})
    pod = Pod(cluster, h100, image, scratch)
    with pod.running() as process:
        wait_for("the pod is ready", lambda: pod.readiness() == 200, evidence=lambda: tail(pod.log))
        h100.wait_labels({COUNT: "8"})
        wait_for("all GPUs", lambda: len(h100.healthy(GPU)) == 8, evidence=lambda: tail(pod.log))
        status = Path(f"/proc/{first_process(process)}/status").read_text()
        for line in ("Uid:\t0\t", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"):
            assert line in status
        assert "NoNewPrivs:\t1" in status
        os.kill(first_process(process), signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, tail(pod.log)
    assert "Traceback" not in pod.log.read_text()
    assert (scratch / "state/gpus.json").exists()
    assert (scratch / "machine/gpu-count.json").exists()


@pytest.mark.parametrize("login", ["token", "program"])
def test_a_kubeconfig_serves_in_the_image(
    cluster: Cluster, image: Tree, scratch: Path, login: str
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text("utf-8"))
    (user,) = config["users"]
    if login == "program":  # as cloud providers do it (client.authentication.k8s.io)
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": user["user"]["token"]},
        }
        user["user"] = {
            "exec": {
                "apiVersion": credential["apiVersion"],
                "command": "echo",
                "args": [json.dumps(credential)],
                "interactiveMode": "Never",
            }
        }
    scratch.joinpath("config").write_text(yaml.safe_dump(config), "utf-8")
    authority = cluster.api.authority
    done = printed(
        image,
        scratch,
        ["nodetopo", "cleanup", "--all-nodes", "--dry-run", "--kubeconfig", "/config"],
        mounts={"/config": scratch / "config", str(authority): authority},
    )
    assert done.returncode == 0, done


def test_the_locks_have_the_wheels_for_arm64(image: Tree, scratch: Path) -> None:
    base = image.labels["org.opencontainers.image.base.name"]
    (version,) = re.findall(r"python:(3\.\d+)", base)
    locks = ("requirements-runtime.lock", "requirements-build.lock")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    command += ["--ignore-installed", "--only-binary=:all:", "--require-hashes"]
    command += [f"--target={scratch}", f"--python-version={version}", "--implementation=cp"]
    command += ["--platform=manylinux_2_28_aarch64", "--platform=manylinux2014_aarch64"]
    command += [word for lock in locks for word in ("-r", str(ROOT / lock))]
    subprocess.run(command, check=True, timeout=600)
