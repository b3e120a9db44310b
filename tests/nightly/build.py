"""The programs of the nightly proof, compiled once from the Go module proxy and kept.

``python -m tests.nightly.build`` builds them ahead of time and prints where they are. On two
cores Kueue takes about ten minutes, KAI five to twenty and NFD ten.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tests.lab.go_program import GoPrograms
from tests.lab.schedulers.crds import MODULES

KUEUE, KAI_SCHEDULER, KAI_BINDER = "kueue", "kai-scheduler", "kai-binder"
NFD_MASTER, NFD_WORKER, NFD_GC = "nfd-master", "nfd-worker", "nfd-gc"
_MODULES = Path(__file__).parent / "go"
_KAI_COMMANDS = "github.com/NVIDIA/KAI-scheduler/cmd"
_NFD_COMMANDS = "sigs.k8s.io/node-feature-discovery/cmd"


def version(project: str) -> str:
    """Return the version of *project*, as ``0.19.2``: the one whose definitions are installed."""
    return MODULES[project].name.rpartition("@v")[2]


def _programs(project: str, packages: Mapping[str, str]) -> GoPrograms:
    title, module = f"{project} {version(project)}", _MODULES / project
    return GoPrograms(shelf="nightly", title=title, module=module, packages=packages)


PROGRAMS: Mapping[str, GoPrograms] = MappingProxyType(
    {
        "kueue": _programs("kueue", {KUEUE: "sigs.k8s.io/kueue/cmd/kueue"}),
        "kai": _programs(
            "kai",
            {
                KAI_SCHEDULER: f"{_KAI_COMMANDS}/scheduler",
                KAI_BINDER: f"{_KAI_COMMANDS}/binder",
            },
        ),
        "nfd": _programs(
            "nfd",
            {name: f"{_NFD_COMMANDS}/{name}" for name in (NFD_MASTER, NFD_WORKER, NFD_GC)},
        ),
    }
)
"""By the name that :mod:`tests.lab.schedulers.crds` has for the project."""


@cache
def programs(project: str) -> Path:
    """Return the folder of the programs of *project*, building them if they are not there.

    Raises:
        RuntimeError: as :meth:`GoPrograms.folder` does.
    """
    return PROGRAMS[project].folder()


if __name__ == "__main__":
    for name in PROGRAMS:
        print(programs(name), flush=True)
