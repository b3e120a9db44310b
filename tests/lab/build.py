"""The lab's programs: Kubernetes and etcd, compiled once from the Go module proxy and kept.

``python -m tests.lab.build`` builds them ahead of time, NVIDIA's device plugin, against
which ours is held, and helm; it prints where they are.
"""

import re
import sys
from functools import cache
from pathlib import Path

from tests.lab import nvidia
from tests.lab.go_program import GoPrograms
from tests.lab.helm import chart
from tests.lab.namespace import unshare_flags

_MODULE = Path(__file__).parent / "go"
_PACKAGES = {
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "fakecri": "./fakecri",
    "admission": "./admission",
    "claims": "./claims",
    "draalloc": "./draalloc",
    "etcd": "./etcd",
}


def kubernetes_version() -> str:
    """Return the pinned version, as go.mod names it: ``v1.36.3``."""
    text = (_MODULE / "go.mod").read_text("utf-8")
    found = re.search(r"^\s*k8s\.io/kubernetes (v[0-9.]+)$", text, re.MULTILINE)
    assert found, "tests/lab/go/go.mod does not pin k8s.io/kubernetes"
    return found[1]


@cache
def binaries() -> Path:
    """Return the folder of the compiled programs, building them if this version has none.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    version = kubernetes_version()
    programs = GoPrograms(
        shelf="lab",
        title=f"{version} of Kubernetes, and etcd",
        module=_MODULE,
        packages=_PACKAGES,
        flags=_link_flags(version),
    )
    return programs.folder()


def _link_flags(version: str) -> str:
    major, minor, _ = version.removeprefix("v").split(".")
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamps = (f"-X k8s.io/component-base/version.{key}={value}" for key, value in facts.items())
    return " ".join(("-s", "-w", *stamps))


if __name__ == "__main__":
    if unshare_flags() is None:
        print("lab: nothing built: the lab needs root or user namespaces", file=sys.stderr)
    else:
        print(binaries())
        print(nvidia.programs())
        print(chart.program())
