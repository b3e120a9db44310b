"""The chart of ``deploy/helm``, rendered by helm itself at the version that go.mod pins."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.lab.go_program import GoPrograms

CHART = Path(__file__).parents[3] / "deploy" / "helm"
KUBERNETES = "1.36.3"
"""What the chart is rendered for; helm alone would say 1.20."""

Object = dict[str, Any]

_TIMEOUT_S = 60


@cache
def program() -> Path:
    """Return helm, building it if it is not there; two minutes cold.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    folder = GoPrograms(
        shelf="lab",
        title="helm",
        module=Path(__file__).parent,
        packages={"helm": "helm.sh/helm/v3/cmd/helm"},
    ).folder()
    return folder / "helm"


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm, without a cluster and without a home."""
    return subprocess.run(
        [program(), *arguments],
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )


def template(
    values: Object | None = None, *arguments: str | Path, namespace: str = "nodetopo"
) -> subprocess.CompletedProcess[str]:
    """Run ``helm template`` for the release ``nodetopo`` with *values*."""
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
    return helm(
        *("template", "nodetopo", CHART, "--namespace", namespace),
        *("--kube-version", KUBERNETES, *given, *arguments),
    )


def render(
    values: Object | None = None, *arguments: str | Path, namespace: str = "nodetopo"
) -> list[Object]:
    """Return the objects of the release ``nodetopo`` with *values*, hooks included.

    Raises:
        AssertionError: helm refuses the values.
    """
    done = template(values, *arguments, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def is_hook(document: Object) -> bool:
    """Return whether helm does not install *document* with the release."""
    return "helm.sh/hook" in document["metadata"].get("annotations", {})
