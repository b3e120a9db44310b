"""The plugin for krew is one small program, and the manifest names its archive."""

import hashlib
import io
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from scripts.release.krew import archive, launcher, manifest
from tests.release.copied import RELEASE, ROOT

LICENCE = (ROOT / "LICENSE").read_bytes()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher with the programs of *folder* alone, besides those of the shell."""
    program = folder / "kubectl-nodetopo"
    program.write_text(launcher(RELEASE), "utf-8")
    return subprocess.run(
        ["/bin/sh", program, *arguments],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("uvx", "--quiet --from nodetopo==1.2.3 kubectl-nodetopo gpu-1 topo matrix"),
        ("pipx", "run --spec nodetopo==1.2.3 kubectl-nodetopo gpu-1 topo matrix"),
    ],
)
def test_the_launcher_runs_the_release(tmp_path: Path, name: str, called: str) -> None:
    tool = tmp_path / name
    tool.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    tool.chmod(0o755)
    done = run(tmp_path, "gpu-1", "topo", "matrix")
    assert (done.stdout, done.returncode) == (f"{called}\n", 7)


def test_without_uv_and_pipx_it_says_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, "gpu-1", "health")
    assert done.returncode == 3
    assert "install one of them" in done.stderr


def test_the_same_release_gives_the_same_archive() -> None:
    assert archive(RELEASE, LICENCE, 1700000000) == archive(RELEASE, LICENCE, 1700000000)


def test_the_manifest_takes_the_program_out_of_the_archive() -> None:
    packed = archive(RELEASE, LICENCE, 1700000000)
    plugin = yaml.safe_load(manifest(RELEASE, packed))
    assert (plugin["kind"], plugin["metadata"]["name"]) == ("Plugin", "nodetopo")
    assert plugin["spec"]["version"] == "v1.2.3"
    assert len(plugin["spec"]["shortDescription"]) <= 50
    (platform,) = plugin["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(packed).hexdigest()
    assert platform["uri"] == (
        "https://github.com/Some-Org/NodeTopo/releases/download/v1.2.3/kubectl-nodetopo.tar.gz"
    )
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        names = {entry.name: entry for entry in tar}
        assert {one["from"] for one in platform["files"]} == names.keys()
        assert names[platform["bin"]].mode & stat.S_IXUSR
