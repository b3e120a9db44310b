"""The custom resources of other projects' schedulers, out of their modules on the Go proxy.

Nothing of theirs is in this repository. A module is fetched once, into Go's own module cache, at
an exact version and checked against the hash written here; of it only the definitions are read.
"""

import json
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import yaml
from msgspec import Struct

from tests.lab.api import Api, Object
from tests.lab.go_program import user_cache
from tests.lab.toolchain import go_command
from tests.lab.waiting import wait_for

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Module(Struct, frozen=True, kw_only=True):
    """A Go module and where its definitions are.

    Attributes:
        name: with its version; its path is spelled as the proxy has it.
        digest: the ``h1:`` hash of its contents, as the checksum database of Go has it.
        definitions: patterns of files below it.
    """

    name: str
    digest: str
    definitions: tuple[str, ...]


MODULES: Mapping[str, Module] = MappingProxyType(
    {
        "kai": Module(
            name="github.com/NVIDIA/KAI-scheduler@v0.12.0",
            digest="h1:3rhB0TdbJYNgOiZ6E0cAa+VJnr4srhoigJI/PkY85vI=",
            definitions=("deployments/kai-scheduler/crds/*.yaml",),
        ),
        "kueue": Module(
            name="sigs.k8s.io/kueue@v0.19.2",
            digest="h1:mPNzr37u0nwI7ikST5QQl5gg6EgtYOAvC9ZbTgywdN8=",
            definitions=("config/components/crd/bases/*.yaml",),
        ),
        "volcano": Module(
            name="volcano.sh/volcano@v1.15.1",
            digest="h1:M0iGzhy1dvod2GFy1QiyWdv1jmmNfHW4+2WoRU7CIAk=",
            definitions=("config/crd/volcano/bases/*.yaml", "config/crd/jobflow/bases/*.yaml"),
        ),
        "lws": Module(
            name="sigs.k8s.io/lws@v0.9.0",
            digest="h1:DcJCgxjjoGOx//QHZkeKpyiblxYq70aCRZNYSfykWyI=",
            definitions=("config/crd/bases/leaderworkerset.*.yaml",),
        ),
        "node-resource-topology": Module(
            name="github.com/k8stopologyawareschedwg/noderesourcetopology-api@v0.1.3",
            digest="h1:aXkBkkcxBYmr9anRPeaz68tvP2bX2HutrGgqr4hoXE4=",
            definitions=("manifests/crd.yaml",),
        ),
        "nfd": Module(
            name="sigs.k8s.io/node-feature-discovery@v0.19.0",
            digest="h1:9CYm16vjSIbNO5Z1Y67rcrfy51YWmy3+6wjiWzJbrC4=",
            definitions=("deployment/base/nfd-crds/nfd-api-crds.yaml",),
        ),
    }
)
"""By the name of the project. These versions the proxy gives out; KAI's later ones it refuses."""


_ATTEMPTS = 3
"""To fetch a module: the proxy is a network away."""


@cache
def module_directory(project: str) -> Path:
    """Return where the module of *project* lies, fetching it if Go's cache lacks it.

    Raises:
        RuntimeError: it cannot be fetched, or is not what it was.
    """
    wanted = MODULES[project]
    go = go_command(user_cache() / "lab")
    for _ in range(_ATTEMPTS):
        done = _downloaded(go, wanted.name)
        if not done.returncode:
            break
    else:
        raise RuntimeError(f"{wanted.name}: {done.stdout}{done.stderr}")
    told = json.loads(done.stdout)
    if told["Sum"] != wanted.digest:
        raise RuntimeError(f"{wanted.name} is {told['Sum']}, not {wanted.digest}")
    return Path(told["Dir"])


def _downloaded(go: Path, name: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as outside:  # within a module its go.mod would have a say
        return subprocess.run(
            [go, "mod", "download", "-json", name],
            cwd=outside,
            capture_output=True,
            text=True,
            check=False,
        )


def definitions(project: str, only: Collection[str] = ()) -> tuple[Object, ...]:
    """Return the CustomResourceDefinitions of *project*, by file name.

    *only* names plurals, such as ``topologies``; empty for all. Each is in a file of its own.
    """
    found = tuple(_read(project, only))
    assert found, f"{MODULES[project].name} defines nothing of {list(only)}"
    return found


def install(api: Api, *projects: str, only: Collection[str] = ()) -> None:
    """Have the API server serve what *projects* define, or of it *only*; return when it does."""
    for project in projects:
        found = definitions(project, only)
        for one in found:
            api.apply(f"{_DEFINITIONS}/{one['metadata']['name']}", one)
        for one in found:
            _wait_served(api, one)


def _read(project: str, only: Collection[str]) -> Iterator[Object]:
    directory = module_directory(project)
    for pattern in MODULES[project].definitions:
        for file in sorted(directory.glob(pattern)):
            if not only or file.stem.rpartition("_")[2] in only:
                # The loader in C: a file of 1.4 MB takes the other 5.2 s, this one 0.4.
                yield from filter(None, yaml.load_all(file.read_text("utf-8"), yaml.CSafeLoader))


def _wait_served(api: Api, definition: Object) -> None:
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            place = f"/apis/{spec['group']}/{version['name']}"
            is_served = partial(_is_served, api, place, spec["names"]["plural"])
            wait_for(f"the API server serves {spec['names']['plural']} of {place}", is_served)


def _is_served(api: Api, place: str, plural: str) -> bool:
    """Return whether *plural* are both named and listed: either may be first."""
    told = api.find(place) or {"resources": ()}
    is_named = any(one["name"] == plural for one in told["resources"])
    return is_named and api.find(f"{place}/{plural}?limit=1") is not None
