"""What a release publishes, by the programs of those who install it: helm, kustomize and Git."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from scripts.release import assets
from tests.deploy.kustomize import render
from tests.deploy.test_daemonset import DEPLOY
from tests.lab import kustomize
from tests.lab.helm import chart
from tests.lab.kustomize import Object
from tests.lab.oci_registry import Registry, registry
from tests.release.copied import RELEASE, ROOT, released

pytestmark = pytest.mark.lab

DIGEST = f"sha256:{'7' * 64}"
TIME = 1_700_000_000
FOLDERS = sorted(
    path.parent
    for path in DEPLOY.rglob("kustomization.yaml")
    if path.parent.parent.name in {"daemonset", "overlays"}
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree that is prepared; tests only read it."""
    return released(tmp_path_factory.mktemp("release") / "tree")


@pytest.fixture(scope="module")
def written(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of the release's page."""
    folder = tmp_path_factory.mktemp("assets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUSTOMIZE", f"{kustomize.program()} build")
        assets.write(tree, folder, f"{RELEASE.image}@{DIGEST}", TIME)
    return folder


@pytest.fixture
def charts() -> Iterator[Registry]:
    with registry() as server:
        yield server


def images(objects: list[Object]) -> set[str]:
    """Return the images of all containers."""
    pods = [one["spec"]["template"]["spec"] for one in objects if "template" in one.get("spec", {})]
    return {container["image"] for pod in pods for container in pod["containers"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_our_own_rendering_is_that_of_kustomize(folder: Path) -> None:
    def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
        return {(one["kind"], one["metadata"]["name"]): one for one in objects}

    ours, theirs = by_name(render(folder)), by_name(kustomize.objects(folder))
    assert ours.keys() == theirs.keys()
    for key, one in theirs.items():
        assert _sorted(ours[key]) == _sorted(one), key


def _sorted(value: object, name: str = "") -> object:
    """Return a document with one order in lists that are merged by name, and single spaces.

    kustomize adds empty lines to folded texts, which the expressions of policies do not mind.
    """
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {key: _sorted(one, key) for key, one in value.items()}
    if isinstance(value, list):
        items = [_sorted(one) for one in value]
        is_merged = name in {"env", "volumeMounts", "volumes"}
        return sorted(items, key=partial(json.dumps, sort_keys=True)) if is_merged else items
    return value


def git(folder: Path, *words: str) -> None:
    """Run git without the settings of this machine."""
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["git", *who, *words], cwd=folder, env=environment, check=True, capture_output=True
    )


def test_the_manifests_are_applied_from_a_tag_of_a_git_repository(
    tree: Path, tmp_path: Path
) -> None:
    remote, work = tmp_path / "remote.git", tmp_path / "work"
    git(tmp_path, "clone", "--quiet", "--bare", *_new_repository(tree, work), str(remote))
    git(work, "commit", "--quiet", "--allow-empty", "--message", "later")
    page = (tree / "docs/operate/install.md").read_text("utf-8")
    (stated,) = set(re.findall(r'kubectl apply -k "(\S+/deploy/daemonset\?ref=\S+)"', page))
    place = stated.replace(RELEASE.url, f"file://{remote}")
    assert place == f"file://{remote}//deploy/daemonset?ref=v1.2.3"
    found = kustomize.objects(place, TMPDIR=str(tmp_path))
    assert images(found) == {"ghcr.io/some-org/nodetopo:1.2.3"}
    assert found == kustomize.objects(tree / "deploy/daemonset")
    # As in "Components": remote components onto a remote base.
    mine = tmp_path / "mine"
    mine.mkdir()
    (block,) = re.findall(r"```yaml\n([^`]*deploy/daemonset/components/cdi[^`]*)```", page)
    text = block.replace(RELEASE.url, f"file://{remote}")
    (mine / "kustomization.yaml").write_text(text, "utf-8")
    (daemonset,) = (
        one for one in kustomize.objects(mine, TMPDIR=str(tmp_path)) if one["kind"] == "DaemonSet"
    )
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert {"name": "NODETOPO_CDI_SPEC", "value": "write"} in container["env"]
    assert "--mig-strategy=mixed" in container["args"]


def _new_repository(tree: Path, work: Path) -> tuple[str, ...]:
    """Return what to clone: *work* as a repository with the tree as the tag of the release."""
    subprocess.run(["cp", "-r", tree, work], check=True)
    git(work, "init", "--quiet")
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--message", "release")
    git(work, "tag", f"v{RELEASE.version}")
    return (str(work),)


def test_a_kustomization_names_another_image(tree: Path, tmp_path: Path) -> None:
    page = (tree / "docs/operate/install.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n([^`]*newName: registry\.example\.com[^`]*)```", page)
    place = os.path.relpath(tree / "deploy/daemonset", tmp_path)
    text = re.sub(r"https://github\.com/\S+", place, block)
    (tmp_path / "kustomization.yaml").write_text(text, "utf-8")
    assert images(kustomize.objects(tmp_path)) == {"registry.example.com/nodetopo:1.2.3"}


@pytest.mark.parametrize("root", ["checkout", "release"])
@pytest.mark.parametrize(
    "image", ["reg.example.com:5000/a/nodetopo:9", f"reg.example.com:5000/nodetopo@{DIGEST}"]
)
def test_a_script_renders_an_image_of_yours_and_changes_no_file(
    tree: Path, root: str, image: str
) -> None:
    script = {"checkout": ROOT, "release": tree}[root] / "scripts" / "manifests"
    before = {path: path.read_bytes() for path in (script.parents[1] / "deploy").rglob("*.yaml")}
    done = subprocess.run(
        [script, image, "overlays/rke2", "components/mig"],
        env={"PATH": "/usr/bin:/bin", "KUSTOMIZE": f"{kustomize.program()} build"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert images(found) == {image}
    assert "/host/var/lib/rancher/rke2/agent/etc" in done.stdout
    assert "SYS_ADMIN" in done.stdout
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no image is named"),
        (("reg.example.com:5000/nodetopo",), "neither a tag nor a digest"),
        (("a:1", "overlays/rancher"), "no overlays/rancher"),
        (("a:1", "components/migs"), "no components/migs"),
    ],
)
def test_the_script_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts/manifests", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr


def test_the_chart_is_pushed_and_installed_by_its_name(
    tree: Path, tmp_path: Path, charts: Registry
) -> None:
    place = f"{charts.address}/some-org/charts"
    home = {"HOME": str(tmp_path), "PATH": f"{chart.program().parent}:/usr/bin:/bin"}
    done = subprocess.run(
        [tree / "scripts/release/push-chart", tmp_path, place, "--plain-http"],
        env=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, digest = done.stdout.strip().split("@")
    assert name == f"{place}/nodetopo"
    tagged = charts.manifests["some-org/charts/nodetopo", "1.2.3"]
    assert f"sha256:{hashlib.sha256(tagged[1]).hexdigest()}" == digest

    def helm(*words: str) -> str:
        done = subprocess.run(
            ["helm", *words], env=home, capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout

    page = (tree / "README.md").read_text("utf-8")
    (stated,) = re.findall(r"helm install nodetopo (oci://\S+ --version \S+)", page)
    words = stated.replace(RELEASE.charts, place).split()
    versions = ("--kube-version", chart.KUBERNETES, "--plain-http")
    rendered = helm("template", "nodetopo", *words, *versions, "--namespace", "nodetopo")
    found = [one for one in yaml.safe_load_all(rendered) if one]
    assert images(found) == {"ghcr.io/some-org/nodetopo:1.2.3"}
    helm("pull", *words, "--plain-http")
    with tarfile.open(tmp_path / "nodetopo-1.2.3.tgz") as packed:
        values = packed.extractfile("nodetopo/values.yaml")
        assert values is not None
        assert values.read() == (tree / "deploy/helm/values.yaml").read_bytes()


def test_the_released_chart_passes_helms_own_checks(tree: Path) -> None:
    done = chart.helm("lint", "--strict", tree / "deploy/helm")
    assert done.returncode == 0, done.stdout
    assert "icon is recommended" not in done.stdout


def test_the_page_has_all_files_and_their_sums(written: Path) -> None:
    lines = (written / assets.SUMS).read_text("utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums.keys() == {
        "install.yaml",
        "krew.yaml",
        "kubectl-nodetopo.tar.gz",
        "nodetopo-1.2.3-py3-none-any.whl",
        "nodetopo-1.2.3.tar.gz",
    }
    for name, digest in sums.items():
        assert hashlib.sha256((written / name).read_bytes()).hexdigest() == digest


def test_install_yaml_is_the_manifests_with_the_image_by_its_digest(
    written: Path, tree: Path
) -> None:
    text = (written / assets.INSTALL).read_text("utf-8")
    found = [one for one in yaml.safe_load_all(text) if one]
    assert images(found) == {f"{RELEASE.image}@{DIGEST}"}
    tagged = kustomize.objects(tree / "deploy/daemonset")
    assert text.replace(f"@{DIGEST}", ":1.2.3") == yaml_of(tree)
    assert len(found) == len(tagged)


def yaml_of(tree: Path) -> str:
    return kustomize.build(tree / "deploy/daemonset").stdout


def test_the_wheel_is_of_the_release_and_says_where_it_is_from(written: Path) -> None:
    with zipfile.ZipFile(written / "nodetopo-1.2.3-py3-none-any.whl") as wheel:
        metadata = wheel.read("nodetopo-1.2.3.dist-info/METADATA").decode()
    assert "Project-URL: Repository, https://github.com/Some-Org/NodeTopo\n" in metadata
    assert "Programming Language :: Python :: 3.14\n" in metadata


def test_the_notes_are_the_changelogs_section_and_how_to_install(written: Path) -> None:
    notes = (written / assets.NOTES).read_text("utf-8")
    assert notes.startswith("### Added\n\n- A thing that only the tests add.\n")
    assert "## 1.2.3" not in notes
    assert f'kubectl apply -k "{RELEASE.url}//deploy/daemonset?ref=v1.2.3"' in notes
    assert "oci://ghcr.io/some-org/charts/nodetopo --version 1.2.3" in notes
    assert f"`{RELEASE.image}@{DIGEST}`" in notes


def test_the_same_commit_gives_the_same_files(
    written: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUSTOMIZE", f"{kustomize.program()} build")
    assets.write(tree, tmp_path / "again", f"{RELEASE.image}@{DIGEST}", TIME)
    sums = assets.SUMS
    assert (tmp_path / "again" / sums).read_text() == (written / sums).read_text()


def test_an_installed_wheel_runs(written: Path, tmp_path: Path) -> None:
    (wheel,) = written.glob("*.whl")
    quietly = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "install", *quietly)
    subprocess.run([*pip, "--target", tmp_path, wheel], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "nodetopo", "version"],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1.2.3" in done.stdout
