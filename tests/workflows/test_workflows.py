"""The workflows: actions by their commits, few rights for each job, no input in a shell."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import nodetopo
from tests.release.copied import RELEASE, released

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github/workflows"
NAMES = sorted(path.name for path in FOLDER.iterdir())

PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
LOCAL = re.compile(r"uses: \./\.github/workflows/[\w.]+")

RIGHTS = {
    "ci.yaml": {"contents: read"},
    "release.yaml": {"contents: read", "contents: write", "packages: write", "id-token: write"},
}
"""All that some job may do."""

Job = dict[str, Any]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree that is prepared; tests only read it."""
    return released(tmp_path_factory.mktemp("release") / "tree")


def workflow(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return found


def jobs(name: str) -> dict[str, Job]:
    found: dict[str, Job] = workflow(name)["jobs"]
    return found


def steps(name: str) -> Iterator[dict[str, Any]]:
    for job in jobs(name).values():
        yield from job.get("steps", ())


def test_both_workflows_are_there() -> None:
    assert sorted(RIGHTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_named_by_its_commit_and_says_its_version(name: str) -> None:
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    used = [line.strip().removeprefix("- ") for line in lines if "uses:" in line]
    assert used
    assert [line for line in used if not (PINNED.fullmatch(line) or LOCAL.fullmatch(line))] == []
    for line in used:
        if LOCAL.fullmatch(line):
            assert (ROOT / line.removeprefix("uses: ./")).is_file()


def test_an_action_has_one_version_everywhere() -> None:
    used = {step["uses"] for name in NAMES for step in steps(name) if "uses" in step}
    actions = [entry.partition("@")[0] for entry in used]
    assert sorted(actions) == sorted(set(actions))


@pytest.mark.parametrize("name", NAMES)
def test_jobs_have_the_rights_that_they_are_given_and_no_others(name: str) -> None:
    document = workflow(name)
    granted = [
        document["permissions"],
        *(job.get("permissions", {}) for job in jobs(name).values()),
    ]
    assert {f"{what}: {may}" for rights in granted for what, may in rights.items()} == RIGHTS[name]
    assert document["permissions"] in ({}, {"contents": "read"})


def test_a_job_that_may_write_to_the_repository_runs_nothing_of_a_checkout() -> None:
    for name in NAMES:
        for job in jobs(name).values():
            if job.get("permissions", {}).get("contents") == "write":
                assert not any("checkout" in step.get("uses", "") for step in job["steps"])


def test_a_job_that_signs_runs_only_after_all_tests() -> None:
    release = jobs("release.yaml")
    assert release["tests"]["uses"] == "./.github/workflows/ci.yaml"
    assert release["tests"]["needs"] == "prepared"
    assert release["image"]["needs"] == "tests"
    assert "image" in release["chart"]["needs"]
    assert "image" in release["assets"]["needs"]
    assert any(step.get("run", "").endswith(".ci/run") for step in steps("ci.yaml"))
    assert any(step.get("run") == "scripts/check" for step in steps("ci.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_no_checkout_leaves_a_token_behind(name: str) -> None:
    found = [step for step in steps(name) if "actions/checkout@" in step.get("uses", "")]
    assert found
    assert all(step["with"]["persist-credentials"] is False for step in found)


@pytest.mark.parametrize("name", NAMES)
def test_no_expression_is_pasted_into_a_script(name: str) -> None:
    assert [step["run"] for step in steps(name) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_job_ends(name: str) -> None:
    own = [job for job in jobs(name).values() if "uses" not in job]
    assert all(job["timeout-minutes"] <= 90 for job in own)


@pytest.mark.parametrize("name", NAMES)
def test_every_script_is_one_that_bash_can_read(name: str) -> None:
    bash = shutil.which("bash")
    assert bash
    for step in steps(name):
        if script := step.get("run"):
            subprocess.run([bash, "-n"], input=script, text=True, check=True)


def script(title: str) -> str:
    (found,) = (step["run"] for step in steps("release.yaml") if step.get("name") == title)
    text: str = found
    return text


def run_step(name: str, directory: Path, tools: str, **environment: str) -> None:
    """Run the script of the step *name* in *directory*, with *tools* in place of programs."""
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", tools + script(name)],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", **environment},
        check=True,
    )


@pytest.mark.parametrize(("tag", "status"), [(f"v{RELEASE.version}", 0), ("v99.0.0", 1)])
def test_only_the_tag_of_a_prepared_tree_is_released(tree: Path, tag: str, status: int) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script("The tag is that of a prepared tree")],
        cwd=tree,
        env={
            "PATH": "/usr/bin:/bin",
            "GITHUB_REF_NAME": tag,
            "GITHUB_REPOSITORY": RELEASE.repository,
        },
        check=False,
    )
    assert done.returncode == status


def test_the_tests_run_on_every_python_that_is_claimed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    claimed = [word for word in project["classifiers"] if word.startswith(prefix)]
    matrix = jobs("ci.yaml")["pythons"]["strategy"]["matrix"]["python"]
    assert [f"Programming Language :: Python :: {version}" for version in matrix] == claimed
    assert project["requires-python"] == f">={matrix[0]}"


def test_only_pypis_job_proves_itself_to_pypi_and_it_runs_nothing_of_a_checkout() -> None:
    found = jobs("release.yaml")["pypi"]
    assert found["permissions"] == {"id-token": "write"}
    assert found["environment"] == "pypi"
    assert not any("checkout" in step.get("uses", "") for step in found["steps"])


def test_the_build_pushes_both_architectures_and_hands_on_the_digest(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    digest = f"sha256:{'5' * 64}"
    tools = (
        "git() { echo 1700000000; }\n"
        'docker() { printf "%s\\n" "$@" >arguments; '
        f'echo \'{{"containerimage.digest": "{digest}"}}\' >dist/build.json; }}\n'
        f"jq() {{ echo {digest}; }}\n"
    )
    run_step(
        "Build and push",
        tmp_path,
        tools,
        GITHUB_REPOSITORY="Owner/NodeTopo",
        GITHUB_SERVER_URL="https://github.com",
        GITHUB_SHA="0" * 40,
        GITHUB_REF_NAME="v1.2.3",
        GITHUB_OUTPUT=str(tmp_path / "output"),
    )
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:3] == ["buildx", "build", "."]
    pairs = dict(pairwise(arguments))
    assert pairs["--platform"] == "linux/amd64,linux/arm64"
    assert pairs["--build-arg"] == "SOURCE_DATE_EPOCH=1700000000"
    assert pairs["--provenance"] == "mode=max"
    assert pairs["--sbom"] == "true"
    output = pairs["--output"].split(",")
    assert {"name=ghcr.io/owner/nodetopo:1.2.3", "push=true", "rewrite-timestamp=true"} <= {*output}
    labels = [word for word in arguments if word.startswith("org.opencontainers.image.created=")]
    assert labels == ["org.opencontainers.image.created=2023-11-14T22:13:20Z"]
    assert (tmp_path / "output").read_text().splitlines() == [
        "image=ghcr.io/owner/nodetopo",
        f"digest={digest}",
    ]


def test_the_documented_verification_trusts_the_workflow_that_signs(tmp_path: Path) -> None:
    page = (ROOT / "docs/operate/install.md").read_text("utf-8")
    (commands,) = re.findall(r"```\n(export REPOSITORY=.*?)```", page, re.DOTALL)
    printed = "".join(f'{name}() {{ echo {name} "$@" >&2; }}\n' for name in ("docker", "cosign"))
    done = subprocess.run(
        ["bash", "-euc", f"{printed}{commands}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    verify, attestation, _ = done.stderr.splitlines()
    repository = "OWNER/nodetopo"
    signer = f"https://github.com/{repository}/.github/workflows/release.yaml@refs/tags/v"
    trusted = f"--certificate-identity {signer}{nodetopo.__version__} --certificate-oidc-issuer"
    image = f"ghcr.io/owner/nodetopo:{nodetopo.__version__}"
    assert trusted in verify
    assert trusted in attestation
    assert verify.endswith(image)
    assert attestation.endswith(image)
    # The release verifies itself with the same words.
    checks = script("The image verifies, and starts")
    (issuer,) = re.findall(r"ISSUER=(\S+)", commands)
    step = next(found for found in steps("release.yaml") if found.get("run") == checks)
    assert step["env"]["ISSUER"] == issuer
    for predicate in re.findall(r"--type (\w+)", commands):
        assert f"cosign verify-attestation --type {predicate} " in checks
        assert f"cosign attest --yes --type {predicate} " in script(
            "Sign the image of each architecture, and attest the bill of materials",
        )


def program(path: Path, text: str) -> None:
    """Write a program of the shell in place of a real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)


def test_the_chart_is_signed_by_the_digest_that_was_pushed(tmp_path: Path) -> None:
    pushed = f"ghcr.io/owner/charts/nodetopo@sha256:{'7' * 64}"
    program(tmp_path / "scripts/release/push-chart", f'echo "$@" >pushed; echo {pushed}')
    run_step(
        "Push the chart, and sign it",
        tmp_path,
        'cosign() { echo "$@" >signed; }\n',
        CHARTS="ghcr.io/owner/charts",
    )
    assert (tmp_path / "pushed").read_text() == "dist ghcr.io/owner/charts\n"
    assert (tmp_path / "signed").read_text() == f"sign --yes {pushed}\n"


def test_a_chart_that_was_not_pushed_is_not_signed(tmp_path: Path) -> None:
    program(tmp_path / "scripts/release/push-chart", "exit 1")
    with pytest.raises(subprocess.CalledProcessError):
        run_step(
            "Push the chart, and sign it", tmp_path, "cosign() { touch signed; }\n", CHARTS="x"
        )
    assert not (tmp_path / "signed").exists()


def test_the_files_of_the_page_are_made_by_pinned_programs(tmp_path: Path) -> None:
    for name in ("pip", "python"):
        text = f'echo {name} "$@" $SOURCE_DATE_EPOCH >>calls'
        program(tmp_path / "build/bin" / name, text)
    run_step(
        "Write the files of the release's page",
        tmp_path,
        "python3() { :; }\ngit() { echo 1700000000; }\n",
        IMAGE="ghcr.io/owner/nodetopo@sha256:5",
    )
    install, write = (tmp_path / "calls").read_text().splitlines()
    assert "--require-hashes" in install
    assert "requirements-build.lock" in install
    module, arguments = "scripts.release.assets", "dist ghcr.io/owner/nodetopo@sha256:5"
    assert write == f"python -m {module} {arguments} 1700000000"


def test_the_page_has_every_file_and_the_notes(tmp_path: Path) -> None:
    files = ("assets/notes.md", "assets/install.yaml", "chart/a.tgz", "bill-of-materials/b.json")
    for name in files:
        path = tmp_path / "all" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    run_step(
        "Make the page",
        tmp_path,
        'gh() { printf "%s\n" "$@" >arguments; }\n',
        GITHUB_REF_NAME="v1.2.3",
        GITHUB_REPOSITORY="Owner/NodeTopo",
        VERSION="1.2.3",
    )
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:3] == ["release", "create", "v1.2.3"]
    assert {f"all/{name}" for name in files[1:]} == {
        word for word in arguments if word.startswith("all/")
    }
    assert dict(pairwise(arguments))["--notes-file"] == "notes.md"
    assert (tmp_path / "notes.md").is_file()
