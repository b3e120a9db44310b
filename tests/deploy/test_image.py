"""What goes into the image."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath

import pytest

import nodetopo
from scripts.release.tree import PLACEHOLDER
from tests.deploy.dockerfile import is_sent, read
from tests.deploy.kustomize import Object, documents, render

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / lock).read_text("utf-8")))


def test_every_dependency_is_in_the_runtime_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {re.split(r"[<>=!~ \[]", line)[0] for line in project["dependencies"]}
    assert needed - pins("requirements-runtime.lock").keys() == set()


def test_the_image_holds_the_versions_that_the_tests_ran_with() -> None:
    tested = pins("requirements.lock")
    assert {name: tested.get(name) for name in pins("requirements-runtime.lock")} == pins(
        "requirements-runtime.lock",
    )


def test_every_pin_carries_hashes() -> None:
    entries = (ROOT / "requirements-runtime.lock").read_text("utf-8").split("\n")
    pinned = [line for line in entries if PIN.match(line)]
    assert [line for line in pinned if not line.endswith("\\")] == []


STAGES = read(ROOT / "Dockerfile")
BUILD, IMAGE = STAGES
BASE = re.compile(r"docker\.io/library/python:(\d+\.\d+)\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}")


def test_both_stages_start_from_one_base_that_a_digest_names() -> None:
    assert BUILD.base == IMAGE.base
    assert BASE.fullmatch(IMAGE.base)


def test_the_linter_has_nothing_to_say_about_the_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_everything_fetched_for_the_image_is_a_wheel_of_the_lock() -> None:
    steps = [step.text for stage in STAGES for step in stage.all("RUN")]
    installs = [found for text in steps for found in re.findall(r"pip\S* .*?install [^&]*", text)]
    fetching = [line for line in installs if "--no-index" not in line]
    checked = ("--require-hashes", "--only-binary=:all:")
    assert len(fetching) == 2
    assert [line for line in fetching if not all(word in line for word in checked)] == []
    fetchers = re.compile(r"\b(curl|wget|apt-get|apt|git) ")
    assert [text for text in steps if fetchers.search(text)] == []
    assert not any(stage.all("ADD") for stage in STAGES)


def copied() -> list[str]:
    """Return what is copied from the context."""
    steps = [step for stage in STAGES for step in stage.all("COPY") if "from" not in step.options]
    return [name for step in steps for name in step.words()[:-1]]


def test_what_is_copied_into_the_image_exists_and_is_sent_to_the_builder() -> None:
    missing = [name for name in copied() if not (ROOT / name).exists()]
    assert (bool(copied()), missing) == (True, [])
    unsent = [name for name in copied() if not is_sent(PurePosixPath(name), ROOT / ".dockerignore")]
    assert unsent == []


def test_nothing_else_is_sent_to_the_builder() -> None:
    here = {path.name for path in ROOT.iterdir()}
    sent = {name for name in here if is_sent(PurePosixPath(name), ROOT / ".dockerignore")}
    assert sent == set(copied())
    for name in (
        "agent/nodetopo/cli/__pycache__/main.pyc",
        "agent/__pycache__",
        "tests/x",
        ".git/config",
    ):
        assert not is_sent(PurePosixPath(name), ROOT / ".dockerignore")
    assert is_sent(PurePosixPath("agent/nodetopo/cli/main.py"), ROOT / ".dockerignore")


def test_the_image_starts_an_isolated_python_that_loses_no_sigterm() -> None:
    (start,) = (step.words() for step in IMAGE.all("ENTRYPOINT"))
    assert start[:3] == ["env", "--block-signal=TERM", "/opt/nodetopo/bin/python"]
    options = start[3 : start.index("-m")]
    assert "I" in "".join(options)
    assert "Xno_debug_ranges" in "".join(options)  # as the bench of the footprint starts it
    assert start[start.index("-m") :] == ["-m", "nodetopo"]


def test_the_image_says_what_it_is() -> None:
    labels = {
        name.removeprefix("org.opencontainers.image."): value
        for step in IMAGE.all("LABEL")
        for name, value in step.assignments().items()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert labels["title"] == project["name"]
    assert labels["version"] == nodetopo.__version__
    assert labels["licenses"] == project["license"]
    assert labels["base.name"] == "$BASE"


INSTALL = re.compile(r"```\n(export IMAGE=.*?)```", re.DOTALL)
"""The commands that build, push, name and apply the image."""

PAGES = ("README.md", "docs/operate/install.md")


def commands(page: str) -> str:
    (found,) = INSTALL.findall((ROOT / page).read_text("utf-8"))
    text: str = found
    return text


def image_of(objects: list[Object]) -> str:
    (daemonset,) = (one for one in objects if one["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    image: str = container["image"]
    return image


def test_until_a_release_is_published_the_readme_says_so() -> None:
    install = (ROOT / "README.md").read_text("utf-8").partition("\n## Install\n")[2]
    before, _, after = install.partition("**Nothing is published yet**")
    assert PLACEHOLDER in before
    assert "docker build" in after
    assert "docker build" not in before


@pytest.mark.parametrize("page", PAGES)
def test_the_documented_commands_apply_the_image_that_they_push(page: str, tmp_path: Path) -> None:
    # Docker and kubectl are printed, the rest is run.
    applied = tmp_path / "applied.yaml"
    printed = (
        'docker() { echo docker "$@"; }\n'
        f'kubectl() {{ echo kubectl "$@"; cat >{shlex.quote(str(applied))}; }}\n'
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{printed}{commands(page)}"],
        cwd=ROOT,
        env={**os.environ, "KUSTOMIZE": f"{sys.executable} -m tests.deploy.kustomize"},
        capture_output=True,
        text=True,
        check=True,
    )
    build, push, apply = (shlex.split(line) for line in done.stdout.splitlines())
    image = build[build.index("-t") + 1]
    assert (build[:2], (ROOT / build[-1] / "Dockerfile").is_file()) == (["docker", "build"], True)
    assert push == ["docker", "push", image]
    assert apply == ["kubectl", "apply", "-f", "-"]
    found = documents(applied)
    assert image_of(found) == image
    kinds = [one["kind"] for one in render(ROOT / "deploy/daemonset")]
    assert [one["kind"] for one in found] == kinds


def test_nothing_tells_a_user_to_change_a_file_of_the_checkout() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [
        page.name for page in pages if re.search(r"\bsed -i|yq -i", page.read_text("utf-8"))
    ] == []


def test_the_documented_build_arguments_are_the_dockerfiles() -> None:
    page = (ROOT / "docs/operate/install.md").read_text("utf-8")
    text = (ROOT / "Dockerfile").read_text("utf-8")
    documented = set(re.findall(r"--build-arg (\w+)=", page))
    assert documented == set(re.findall(r"^ARG (\w+)=", text, re.MULTILINE))


def test_the_image_is_of_this_version() -> None:
    base = ROOT / "deploy/daemonset/base"
    assert image_of(render(base)) == f"nodetopo:{nodetopo.__version__}"
    (daemonset,) = documents(base / "daemonset.yaml")
    assert image_of([daemonset]) == "nodetopo"  # the tag stands in one place
