"""What goes into the image."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import agent
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


def test_everything_fetched_for_the_image_is_checked_or_local() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install[^&\n]*", text)
    unchecked = [
        line for line in installs if "--require-hashes" not in line and "--no-index" not in line
    ]
    assert unchecked == []


def test_everything_copied_into_the_image_exists() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    missing = [name for line in copied for name in line.split() if not (ROOT / name).exists()]
    assert missing == []


INSTALL = re.compile(r"```\n(export IMAGE=.*?)```", re.DOTALL)
"""The commands that build, push, name and apply the image."""

PAGES = ("README.md", "docs/operate/install.md")
OVERLAYS = sorted((ROOT / "deploy/daemonset/overlays").iterdir())


def commands(page: str) -> str:
    (found,) = INSTALL.findall((ROOT / page).read_text("utf-8"))
    text: str = found
    return text


def image_of(objects: list[Object]) -> str:
    (daemonset,) = (one for one in objects if one["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    image: str = container["image"]
    return image


def test_until_an_image_is_published_the_readme_says_so_first() -> None:
    install = (ROOT / "README.md").read_text("utf-8").partition("\n## Install\n")[2]
    assert install.lstrip().startswith("No image is published yet.")


@pytest.mark.parametrize("page", PAGES)
def test_the_documented_commands_apply_the_image_that_they_push(page: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    # Docker and kubectl are printed, the rest is run.
    printed = "".join(f'{name}() {{ echo {name} "$@"; }}\n' for name in ("docker", "kubectl"))
    done = subprocess.run(
        ["bash", "-euc", f"{printed}{commands(page)}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    build, push, apply = (shlex.split(line) for line in done.stdout.splitlines())
    image = build[build.index("-t") + 1]
    assert (build[:2], (ROOT / build[-1] / "Dockerfile").is_file()) == (["docker", "build"], True)
    assert push == ["docker", "push", image]
    assert apply[:3] == ["kubectl", "apply", "-k"]
    assert image_of(render(tmp_path / apply[3])) == image
    overlays = [tmp_path / overlay.relative_to(ROOT) for overlay in OVERLAYS]
    assert overlays
    assert {image_of(render(overlay)) for overlay in overlays} == {image}


def test_a_kustomization_of_ones_own_names_another_image(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    page = (ROOT / "docs/operate/install.md").read_text("utf-8")
    (plan,) = re.findall(r"```yaml\n(apiVersion: kustomize.*?)```", page, re.DOTALL)
    (wanted,) = yaml.safe_load(plan)["images"]
    mine = tmp_path / "deploy/daemonset/overlays/mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(plan, "utf-8")
    assert image_of(render(mine)) == f"{wanted['newName']}:{wanted['newTag']}"


def test_the_image_is_of_this_version() -> None:
    base = ROOT / "deploy/daemonset/base"
    assert image_of(render(base)) == f"nodetopo:{agent.__version__}"
    (daemonset,) = documents(base / "daemonset.yaml")
    assert image_of([daemonset]) == "nodetopo"  # the tag stands in one place
