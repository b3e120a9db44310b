"""The workflows: actions by their commits, few rights for each job, no input in a shell."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import nodetopo

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
    assert (release["image"]["needs"], release["chart"]["needs"]) == ("tests", "image")
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


@pytest.mark.parametrize(("tag", "status"), [(f"v{nodetopo.__version__}", 0), ("v99.0.0", 1)])
def test_a_tag_of_another_version_is_not_released(tag: str, status: int) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script("The tag is the version of the code")],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "GITHUB_REF_NAME": tag},
        check=False,
    )
    assert done.returncode == status


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
    image = f"ghcr.io/{repository}:{nodetopo.__version__}"
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


def test_the_chart_names_the_image_and_is_signed_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    digest = f"sha256:{'7' * 64}"
    tools = (
        'note() { printf "%s " "$@" >>calls; echo >>calls; }\n'
        'yq() { note yq "$IMAGE" "$@"; }\ncosign() { note cosign "$@"; }\n'
        'helm() { note helm "$@"; [ "$1" = package ] || '
        f'printf "Pushed: x\\nDigest: {digest}\\n" >&2; }}\n'
    )
    run_step(
        "Push the chart, and sign it",
        tmp_path,
        tools,
        GITHUB_REPOSITORY_OWNER="Owner",
        GITHUB_REF_NAME="v1.2.3",
        IMAGE="ghcr.io/owner/nodetopo",
    )
    values, package, push, sign = (tmp_path / "calls").read_text().splitlines()
    assert values.startswith("yq ghcr.io/owner/nodetopo --inplace .image.repository = ")
    assert "--version 1.2.3 --app-version 1.2.3" in package
    assert push.split() == ["helm", "push", "dist/nodetopo-1.2.3.tgz", "oci://ghcr.io/owner/charts"]
    assert sign.split() == ["cosign", "sign", "--yes", f"ghcr.io/owner/charts/nodetopo@{digest}"]
