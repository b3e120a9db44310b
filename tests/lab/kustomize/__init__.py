"""The real kustomize, which ``kubectl kustomize`` is too."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.lab.go_program import GoPrograms

Object = dict[str, Any]

_TIMEOUT_S = 120


@cache
def program() -> Path:
    """Return kustomize at the version that go.mod pins, building it if it is not there.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    folder = GoPrograms(
        shelf="lab",
        title="kustomize",
        module=Path(__file__).parent,
        packages={"kustomize": "sigs.k8s.io/kustomize/kustomize/v5"},
    ).folder()
    return folder / "kustomize"


def build(place: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``kustomize build`` on a folder, or on a folder of a Git repository by its URL."""
    return subprocess.run(
        [program(), "build", place],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )


def objects(place: str | Path, **environment: str) -> list[Object]:
    """Return the objects that :func:`build` renders.

    Raises:
        AssertionError: it fails.
    """
    done = build(place, **environment)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]
