"""The image without a registry: Debian's own files, and the Dockerfile's instructions on top.

``debootstrap`` makes the base from Debian's archive: the release and the version of Python that the
Dockerfile's base has. Each step is taken from the Dockerfile, so that what is tested cannot drift
from what ``docker build`` makes. Each stage is a directory over that of its base (overlayfs).

What differs from the real image: Python is Debian's 3.13 and not the one that Docker's library
compiles, and the layers have no manifest. It takes root: for mounts, and for Debian's scripts.
"""

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from tests.deploy.dockerfile import Instruction, Stage, expand, is_sent, read
from tests.lab.debian import ensure_installed, mirror
from tests.lab.go_program import locked, user_cache

ROOT = Path(__file__).parents[2]
RELEASE = "trixie"
"""Debian 13, of ``python:3.13-slim-trixie``; its Python is 3.13 too."""

_PACKAGES = "python3,python3-venv"
"""The interpreter, and ``ensurepip``, which Debian packages apart from it."""
_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
"""As the Dockerfile's base sets it."""
_TIMEOUT_S = 900
"""Of one step. The longest, ``debootstrap``, took 90 s of two cores that were busy with more."""
_ALONE = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
)
"""With mounts and processes of its own, all of which end with the process that started it."""
_OF_THE_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs")
"""What a builder shows to its steps, so that they reach the package index as this machine does."""
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclasses.dataclass
class Tree:
    """The file system and the settings of a stage.

    Attributes:
        layers: its directories, the topmost first; all but the first are those of its base.
        environment: what ``ENV`` set.
        labels: what ``LABEL`` set.
        entrypoint: the command, empty if none was set.
        command: its arguments unless others are given.
        directory: where ``RUN`` works.
    """

    layers: tuple[Path, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    entrypoint: list[str] = dataclasses.field(default_factory=list)
    command: list[str] = dataclasses.field(default_factory=list)
    directory: str = "/"

    def mounting(self, place: Path, upper: Path) -> str:
        """Return the shell commands that mount it at *place*; what is written goes to *upper*.

        *upper* is the topmost layer, or a directory beside it on the same file system.
        """
        lower = self.layers[1:] if upper == self.layers[0] else self.layers
        work = upper.with_name(f"{upper.name}.work")
        options = f"lowerdir={':'.join(map(str, lower))},upperdir={upper},workdir={work}"
        folders = shlex.join(map(str, (place, upper, work)))
        return f"mkdir -p {folders}; mount -t overlay image -o {shlex.quote(options)} {place}"


@cache
def base() -> Path:
    """Return the directory of a minimal Debian with Python, made the first time.

    Raises:
        RuntimeError: this is not root, or Debian's archive cannot be reached.
    """
    debootstrap = ensure_installed("debootstrap", program="debootstrap")
    kept = user_cache() / "image"
    kept.mkdir(parents=True, exist_ok=True)
    done = kept / RELEASE
    with locked(kept / "lock"):
        if not done.is_dir():
            print(f"lab: debootstrap {RELEASE}, a minute or three", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="building-", dir=kept) as scratch:
                _debootstrap(debootstrap, Path(scratch))
                (Path(scratch) / "tree").rename(done)
    return done


def _debootstrap(program: Path, into: Path) -> None:
    """Make ``tree`` in *into* by way of memory, as dpkg waits for the disk at every file."""
    options = f"--variant=minbase --include={_PACKAGES} {RELEASE}"
    _shell(
        f"cd {shlex.quote(str(into))}",
        "mkdir memory",
        "mount -t tmpfs -o size=1g image memory",
        f"{program} {options} memory/tree {mirror()}",
        "rm -rf memory/tree/var/cache/apt/* memory/tree/var/lib/apt/lists/*",
        "cp -a memory/tree tree",
    )


def build(folder: Path, arguments: Mapping[str, str]) -> Tree:
    """Carry out this checkout's Dockerfile below the empty *folder*; return the image.

    Args:
        folder: on a file system that overlayfs can write to.
        arguments: what ``--build-arg`` gives.

    Raises:
        RuntimeError: a step failed.
    """
    done: dict[str, Tree] = {}
    debian = tree = Tree((base(),), {"PATH": _PATH})
    for number, stage in enumerate(read(ROOT / "Dockerfile")):
        name = stage.name or str(number)
        below = done.get(stage.base, debian)
        tree = done[name] = _stage(stage, below, folder / name, done, arguments)
    return tree


def _stage(
    stage: Stage, below: Tree, home: Path, done: Mapping[str, Tree], given: Mapping[str, str]
) -> Tree:
    own = home / "layer"
    own.mkdir(parents=True)
    tree = Tree((own, *below.layers), dict(below.environment), directory=below.directory)
    arguments: dict[str, str] = {}
    for step in stage.instructions:
        values = {**arguments, **tree.environment}
        set_here = {name: expand(value, values) for name, value in _set_by(step)}
        match step.name:
            case "ARG":
                arguments |= {name: given.get(name, value) for name, value in set_here.items()}
            case "ENV":
                tree.environment |= set_here
            case "LABEL":
                tree.labels |= set_here
            case "WORKDIR":
                tree.directory = step.text
                (own / step.text.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(step, tree, done)
            case "RUN":
                _run(step, tree, home, values)
            case "ENTRYPOINT":
                tree.entrypoint = step.words()
            case "CMD":
                tree.command = step.words()
            case "USER":
                assert step.text == "0", step
            case other:
                raise AssertionError(f"the lab does not carry out {other}")
    return tree


def _set_by(step: Instruction) -> list[tuple[str, str]]:
    is_setting = step.name in ("ARG", "ENV", "LABEL")
    return list(step.assignments().items()) if is_setting else []


def _copy(step: Instruction, tree: Tree, done: Mapping[str, Tree]) -> None:
    """Copy from the context, as ``.dockerignore`` leaves it, or from an earlier stage."""
    *sources, target = step.words()
    place = tree.layers[0] / str(PurePosixPath(tree.directory, target)).lstrip("/")
    if "from" in step.options:
        (source,) = sources
        place.parent.mkdir(parents=True, exist_ok=True)
        found = done[step.options["from"]].layers[0] / source.lstrip("/")
        _shell(f"cp -a {shlex.quote(str(found))} {shlex.quote(str(place))}")
        return
    for name in sources:
        for path in _files(ROOT / name):
            if is_sent(PurePosixPath(path.relative_to(ROOT)), ROOT / ".dockerignore"):
                # The content of a directory is copied, a file goes into its target.
                inside = path.relative_to(ROOT / name if (ROOT / name).is_dir() else ROOT)
                (place / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place / inside)


def _files(path: Path) -> Iterator[Path]:
    yield from (found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]


def _run(step: Instruction, tree: Tree, home: Path, environment: Mapping[str, str]) -> None:
    """Run a step in its stage, in namespaces that end with it."""
    root = home / "root"
    lines = [tree.mounting(root, tree.layers[0]), f"mount -t proc proc {root}/proc"]
    lines += [
        f"mount --bind -o ro {path} {root}{path}"
        for path in _OF_THE_NETWORK
        if Path(path).exists() and (tree.layers[-1] / path.lstrip("/")).exists()
    ]
    if "mount" in step.options:
        options = dict(pair.split("=") for pair in step.options["mount"].split(","))
        assert {**options, "target": ""} == {"type": "cache", "target": ""}, step
        kept = user_cache() / "image" / options["target"].strip("/").replace("/", "-")
        kept.mkdir(parents=True, exist_ok=True)
        lines += [
            f"mkdir -p {root}{options['target']}",
            f"mount --bind {shlex.quote(str(kept))} {root}{options['target']}",
        ]
    variables = {"HOME": "/root", **_package_index(), **environment}
    words = [f"{name}={value}" for name, value in variables.items()]
    command = f"cd {shlex.quote(tree.directory)} && {step.text}"
    _shell(*lines, shlex.join(["chroot", str(root), "env", "-i", *words, "sh", "-ec", command]))


@cache
def _package_index() -> Mapping[str, str]:
    """Return this machine's way to the package index, as variables of pip's."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    found = {name: os.environ[name] for name in _proxies()}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2].upper().replace("-", "_")
        found[f"PIP_{option}"] = value.strip("'\"")
    return found


def _proxies() -> list[str]:
    return [name for name in os.environ if name.lower() in _PROXIES]


def _shell(*lines: str) -> None:
    """Run *lines* as root with mounts and processes of their own, which end with them.

    Raises:
        RuntimeError: one of them failed; with the end of what they printed.
    """
    ended = subprocess.run(
        [*_ALONE, "sh", "-ec", "\n".join(lines)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if ended.returncode:
        raise RuntimeError(f"{lines[-1]}\n{ended.stdout[-4000:]}")


def started(
    tree: Tree,
    scratch: Path,
    arguments: Sequence[str],
    *,
    mounts: Mapping[str, Path | None] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the command that runs *tree* as a container runtime would.

    As uid 0 without any capability, with no_new_privs, a read-only root and process ids of its
    own, in which it is the first process.

    Args:
        scratch: an empty directory beside the layers.
        arguments: what follows the entry point; empty for ``CMD``.
        mounts: files and directories of this machine by their place in the container;
            ``None`` for an empty file system in memory.
        environment: variables beside those of ``ENV``.
    """
    root, upper = scratch / "root", scratch / "upper"
    lines = [tree.mounting(root, upper), f"mount -t proc proc {root}/proc"]
    for place, source in mounts.items():
        # `/var/run` leads to `/run` by its absolute path: outside of the tree.
        at = shlex.quote(f"{root}{place.replace('/var/run/', '/run/')}")
        if source is None:
            lines += [f"mkdir -p {at}; mount -t tmpfs image {at}"]
        else:
            make = f"mkdir -p {at}" if source.is_dir() else f"mkdir -p $(dirname {at}); touch {at}"
            lines += [f"{make}; mount --bind {shlex.quote(str(source))} {at}"]
    variables = {**tree.environment, **environment}
    command = [
        *("chroot", str(root), "/usr/bin/setpriv", "--no-new-privs", "--bounding-set=-all"),
        *("--inh-caps=-all", "--ambient-caps=-all", "--"),
        *("/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items())),
        *(*tree.entrypoint, *(arguments or tree.command)),
    ]
    lines += [f"mount -o remount,ro,bind {root}", f"cd /; exec {shlex.join(command)}"]
    return [*_ALONE, "sh", "-ec", "\n".join(lines)]
