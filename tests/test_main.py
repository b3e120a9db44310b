"""SIGTERM from the first instruction on: the daemon ends well, also as a container's first process.

Python calls ``sitecustomize`` when it starts, which here stops the process at a moment that the
test names; the signal is sent while it waits there.
"""

import os
import signal
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from select import select

import pytest

from tests.deploy.dockerfile import read
from tests.kernel.test_app import COMMAND, TIMEOUT_S, environment

ROOT = Path(__file__).parents[1]

STOPPING = """
import os, sys

moment, reached, go_on = os.environ["STOP_AT"], int(os.environ["REACHED"]), int(os.environ["GO_ON"])

def stop():
    global moment
    moment = None
    os.write(reached, b".")
    os.read(go_on, 1)

def hook(event, arguments):
    if moment is not None and moment == (arguments[0] if event == "import" else event):
        stop()

if moment == "start":
    stop()
else:
    sys.addaudithook(hook)
"""

MOMENTS = (
    "nodetopo.cli.main",  # the first import after the handlers
    "nodetopo.cli.files",  # of the command run
    "nodetopo.kernel.settings.reload",
    "nodetopo.kernel.settings.nvidia.names",
    "grpc",
    "tempfile.mkdtemp",  # the settings are read, and nothing is served yet
)
"""Modules that are about to be imported, and an event of the interpreter."""


@cache
def as_first_process() -> tuple[str, ...]:
    """Return the prefix that makes a command the first process of a PID namespace.

    It is empty where there may be none; SIGTERM then ends a process without a handler.
    """
    for user in ((), ("--user", "--map-root-user")):
        prefix = ("unshare", *user, "--pid", "--fork", "--kill-child")
        if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode == 0:
            return prefix
    return ()


def outcome_of_sigterm(directory: Path, moment: str, *launcher: str) -> tuple[int, str]:
    """Start the daemon by way of *launcher*, send SIGTERM at *moment*; return status and stderr."""
    directory.joinpath("sitecustomize.py").write_text(STOPPING)
    (reached, reach), (go_on, let_go) = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [*as_first_process(), *launcher, *COMMAND, "--machine=dgx-1v", "--log-level=warning"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=(reach, go_on),
        env=environment(
            PYTHONPATH=str(directory), STOP_AT=moment, REACHED=str(reach), GO_ON=str(go_on)
        ),
    )
    try:
        os.close(reach)
        assert select([reached], (), (), TIMEOUT_S)[0], f"{moment} was never reached"
        os.kill(_python(process.pid), signal.SIGTERM)
        os.write(let_go, b".")
        _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
        for descriptor in (reached, go_on, let_go):
            os.close(descriptor)
    return process.returncode, said


def _python(pid: int) -> int:
    """Return the process that unshare(1) has started; *pid* itself without unshare."""
    if not as_first_process():
        return pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_ends_a_daemon_that_only_starts(moment: str, tmp_path: Path) -> None:
    assert outcome_of_sigterm(tmp_path, moment) == (0, "")


def test_the_image_keeps_a_sigterm_that_comes_before_there_is_a_handler(tmp_path: Path) -> None:
    (start,) = read(ROOT / "Dockerfile")[-1].all("ENTRYPOINT")
    *launcher, python, _, _, module = start.words()
    assert (Path(python).name, module) == ("python", "nodetopo")
    assert outcome_of_sigterm(tmp_path, "start", *launcher) == (0, "")


def test_the_program_is_the_module() -> None:
    """Both install the handlers first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"]["nodetopo"] == "nodetopo.__main__:main"
