"""The lab's programs: Kubernetes and etcd, compiled once from the Go module proxy and kept.

``python -m tests.lab.build`` builds them ahead of time, the managers of an older kubelet, NVIDIA's
device plugin, against which ours is held, helm and kustomize; it prints where they are.
``--release 1.37`` also builds those of the newer Kubernetes, as does ``NODETOPO_NIGHTLY=1``.
"""

import argparse
import re
import sys
from functools import cache
from pathlib import Path

from tests.budget import IS_NIGHTLY
from tests.lab import kustomize, nvidia
from tests.lab.go_program import GoPrograms
from tests.lab.helm import chart
from tests.lab.namespace import unshare_flags
from tests.lab.release import RELEASES, chosen

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


OLD_VERSION = "v1.35.4"
"""Of :func:`old_managers`; go-1.35.mod pins it."""


def kubernetes_version(release: str | None = None) -> str:
    """Return the version that is pinned for *release*, as its module file names it: ``v1.36.3``.

    Raises:
        RuntimeError: as :func:`tests.lab.release.chosen` does.
    """
    pins = _MODULE / f"{chosen(release).pins}.mod"
    text = pins.read_text("utf-8")
    found = re.search(r"^\s*k8s\.io/kubernetes (v[0-9.]+)$", text, re.MULTILINE)
    assert found, f"{pins} does not pin k8s.io/kubernetes"
    return found[1]


def binaries(release: str | None = None) -> Path:
    """Return the folder of the programs of *release*, building them if these sources have none.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` and :func:`tests.lab.release.chosen` do.
    """
    return _binaries(chosen(release).name)


@cache
def _binaries(release: str) -> Path:
    version, sources = kubernetes_version(release), chosen(release)
    programs = GoPrograms(
        shelf="lab",
        title=f"{version} of Kubernetes, and etcd",
        module=_MODULE,
        packages=_PACKAGES,
        pins=sources.pins,
        tags=sources.tags,
        flags=_link_flags(version),
    )
    return programs.folder()


@cache
def old_managers() -> Path:
    """Return the managers of the kubelet before they took the NUMA nodes of devices only.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    programs = GoPrograms(
        shelf="lab",
        title=f"{OLD_VERSION} of the kubelet's managers",
        module=_MODULE,
        packages={"admission": _PACKAGES["admission"]},
        pins="go-1.35",
    )
    return programs.folder() / "admission"


def _link_flags(version: str) -> str:
    major, minor, _ = version.removeprefix("v").split(".")
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamps = (f"-X k8s.io/component-base/version.{key}={value}" for key, value in facts.items())
    return " ".join(("-s", "-w", *stamps))


def main() -> None:
    """Build what the command line and the environment ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.build")
    help_ = "also this release of Kubernetes; can be repeated"
    parser.add_argument("--release", action="append", choices=RELEASES, default=[], help=help_)
    wanted = {chosen().name, *parser.parse_args().release}
    if IS_NIGHTLY:
        wanted.update(RELEASES)
    if unshare_flags() is None:
        print("lab: nothing built: the lab needs root or user namespaces", file=sys.stderr)
        return
    for folder in sorted({binaries(name) for name in sorted(wanted)}):
        print(folder)
    print(old_managers().parent)
    print(nvidia.programs())
    print(chart.program())
    print(kustomize.program())


if __name__ == "__main__":
    main()
