"""Every reader of a document that may come from a stranger, and what may come of reading it.

A reader takes the text of a document, and does with it what its users do. It returns whether the
document was read; one that it refuses was refused as it should be: by an error of ours with one
line of at most :data:`LONGEST_LINE` characters. Anything else is raised.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.cli.main import BAD_INPUT, COULD_NOT_TELL, FAILED, OK, main
from nodetopo.components.gpus.health.saved import decode as decode_health
from nodetopo.components.labels.levels_file import load_levels
from nodetopo.errors import AgentError
from nodetopo.formats.document import load_all
from nodetopo.formats.loader_cache import cached_libraries
from nodetopo.formats.safe import load_json, load_toml
from nodetopo.formats.signatures import Reader as FileReader
from nodetopo.formats.signatures import log_form, other_form
from nodetopo.kernel.settings.origin import ConfigFile
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.model.codec import decode, encode
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import NO_READING, discover
from nodetopo.probes.kubelet.api import settings_from_configz
from nodetopo.probes.kubelet.metrics import metrics_from_text
from nodetopo.probes.sysfs import tree
from nodetopo.probes.sysfs.host import Roots
from nodetopo.probes.sysfs.kernel_log import parse as parse_kernel_record
from nodetopo.probes.sysfs.pci_config import parse_vpd
from nodetopo.tools.capture.archive import unpack
from nodetopo.tools.capture.scrub_text import TextScrubber
from nodetopo.tools.capture.substitutes import Substitutes
from nodetopo.topology.complexes import complexes
from tests.bench.traces.workload import from_files, parse, plan
from tests.conftest import NODES
from tests.fuzz import node_readers
from tests.tools.importers.rdma_topo import parse_rdma_topo

LONGEST_LINE = 500
"""Characters of an error: what a terminal shows in a few rows."""

Reader = Callable[[str], bool]

_ANSWERS = (OK, BAD_INPUT, COULD_NOT_TELL)
_MACHINE = ("--machine", "h200-nvl-4")
_NODE = ("labels",), ("topo", "matrix"), ("topo", "tree"), ("allocate", "--size", "2")


class OracleError(AssertionError):
    """A reader did what it must not do."""


class Commands(Struct, frozen=True):
    """Reads a document by commands that take its file after *flag*; the first decides."""

    flag: str
    commands: tuple[tuple[str, ...], ...]
    codes: tuple[int, ...] = _ANSWERS

    def __call__(self, text: str) -> bool:
        """Run the commands until one refuses the document."""
        with tempfile.NamedTemporaryFile("wb", suffix=".txt") as file:
            file.write(text.encode("utf-8", "surrogatepass"))
            file.flush()
            return all(self._is_read(command, file.name) for command in self.commands)

    def _is_read(self, command: tuple[str, ...], name: str) -> bool:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*command, self.flag, name])
        errors = [line for line in err.getvalue().splitlines() if line.startswith("error: ")]
        if code not in self.codes:
            raise OracleError(f"{command}: exit status {code}: {err.getvalue()[:1000]}")
        if code == BAD_INPUT and len(errors) != 1:
            raise OracleError(f"{command}: not one error: {err.getvalue()[:1000]}")
        if code == BAD_INPUT:
            check_line(errors[0])
        return code != BAD_INPUT


def check_line(line: str) -> None:
    """Hold that *line* is one, and not too long.

    Raises:
        OracleError: it is not.
    """
    if "\n" in line or len(line) > LONGEST_LINE:
        raise OracleError(f"a message of {len(line)} characters: {line[:1000]!r}")


def _function(read: Callable[[str], object], refusal: type[Exception] = AgentError) -> Reader:
    """Return the reader that calls *read*, which refuses by AgentError or *refusal*."""

    def reader(text: str) -> bool:
        try:
            read(text)
        except Exception as error:
            if not isinstance(error, AgentError | refusal):
                raise
            check_line(str(error))
            return False
        return True

    return reader


def _checks(path: Path) -> None:
    """Check a file about checks."""
    from nodetopo.components.audit.checks_file import check  # noqa: PLC0415 - can be dropped

    check(path)


def _of_file(read: Callable[[Path], object]) -> Callable[[str], object]:
    """Return *read* as a function of the file's text."""

    def reader(text: str) -> object:
        with tempfile.NamedTemporaryFile("wb", suffix=".txt") as file:
            file.write(text.encode("utf-8", "surrogatepass"))
            file.flush()
            return read(Path(file.name))

    return reader


def _settings(text: str) -> object:
    return Resolved.of(flags={}, environment={}, file=ConfigFile(name="config.yaml", text=text))


KERNEL_NODE = "a100x4-nv4-4numa-2cx"


@cache
def host() -> Roots:
    """Return a small node's files, unpacked once for the process."""
    directory = tempfile.TemporaryDirectory(prefix="nt-fuzz-")
    _kept.append(directory)
    root = Path(directory.name)
    unpack((NODES / KERNEL_NODE / "sysfs.txt").read_text("utf-8"), root)
    return Roots(sysfs=root / "sys", procfs=root / "proc", host=root)


_kept: list[tempfile.TemporaryDirectory[str]] = []


@contextmanager
def _replaced(files: Mapping[str, str]) -> Iterator[None]:
    """Let the files of :func:`host` hold other bytes: by path from its root, in Latin-1."""
    really = tree._read
    top = str(host().host)

    def read(root: Path, act: tree.Act, path: str) -> tree.Outcome:
        place = str(root / path).removeprefix(top).lstrip("/")
        if place in files and act is tree.Act.CONTENT:
            return files[place].encode("latin-1", "replace")
        if place in files and act is tree.Act.NAMES:
            return tuple(sorted(set(files[place].split("\n")) - {""}))
        return really(root, act, path)

    tree._read = read
    try:
        yield
    finally:
        tree._read = really


def _kernel(text: str) -> object:
    """Read a node some of whose files are replaced; the document maps their paths to contents."""
    files = json.loads(text)
    reading = replace(
        NO_READING,
        gpus=tuple(
            Gpu(index=index, pci=address)
            for index, address in enumerate(_plain_node().pci_gpus or ())
        ),
    )
    with _replaced(files):
        found = discover(host(), lambda: reading, node="node", captured_at=None, counters=True)
    # What is captured can be read again.
    if decode(encode(found)).snapshot != found:
        raise OracleError("the snapshot of it does not read as it was written")
    return found


@cache
def _plain_node() -> Snapshot:
    return discover(host(), None, node="node", captured_at=None, counters=True)


def kernel_files() -> tuple[str, ...]:
    """Return the paths of the files and directories that are read of :func:`host`."""
    paths: set[str] = set()
    really = tree._read
    top = str(host().host)

    def read(root: Path, act: tree.Act, path: str) -> tree.Outcome:
        if act in (tree.Act.CONTENT, tree.Act.NAMES):
            paths.add(str(root / path).removeprefix(top).lstrip("/"))
        return really(root, act, path)

    tree._read = read
    try:
        _kernel("{}")
    finally:
        tree._read = really
    return tuple(sorted(paths))


def _loader_cache(text: str) -> object:
    return list(cached_libraries(text.encode("latin-1", "replace"), "x86_64"))


def _kernel_log(text: str) -> object:
    raw = text.encode("latin-1", "replace")
    return parse_vpd(raw), [parse_kernel_record(line) for line in raw.split(b"\n")]


def _signature(text: str) -> object:
    """Look for every form, as a refusal does, and for a bandwidth test anywhere."""
    return log_form(text), [other_form(text, reader) for reader in (None, FileReader.LOG)]


def _scrubbed(text: str) -> object:
    """Scrub free text, and the text as a log."""
    scrubber = TextScrubber(Substitutes())
    return scrubber.log(text.splitlines()), scrubber.text(text)


def _trace(text: str) -> object:
    """Read a trace of jobs, and plan them on a node of 8 GPUs."""
    files = [parse("trace.csv", text)]
    source, workload = from_files(files)
    return plan(source=source, workload=workload, files=files, gpus=8, load=None, count=20)


READERS: Mapping[str, Reader] = {
    "snapshot": Commands("--snapshot", (*_NODE, ("nccl", "xml"))),
    "host-snapshot": Commands("--like", (("nccl", "xml", "--machine", "dgx-h100"),)),
    "topo-m": Commands("--topo-m", _NODE),
    "nccl-xml": Commands("--nccl-xml", _NODE),
    "rdma-topo": _function(lambda text: complexes(parse_rdma_topo(text))),
    "trace": _function(_trace),
    "manifest": Commands("--manifest", (("admit", *_MACHINE),), (*_ANSWERS, FAILED)),
    "bandwidths": Commands("--bandwidth-table", (("allocate", "--size", "2", *_MACHINE),)),
    "bandwidth-log": Commands("--no-color", (("nccl", "check", *_MACHINE),), (*_ANSWERS, FAILED)),
    "signature": _function(_signature),
    "scrubbed-text": _function(_scrubbed),
    "migrate": Commands("--no-color", (("migrate",),), (*_ANSWERS, FAILED)),
    "nodes": Commands("--nodes", (("export", "--for", "kueue"),)),
    "gangs": Commands(
        "--objects",
        (("doctor", "--nodes", str(Path(__file__).with_name("nodes.json"))),),
        (*_ANSWERS, FAILED),
    ),
    "levels": _function(_of_file(load_levels)),
    "checks": _function(_of_file(_checks)),
    "config": _function(_settings),
    "configz": _function(settings_from_configz),
    "metrics": _function(metrics_from_text, ValueError),
    "health": _function(decode_health),
    "json": _function(load_json, ValueError),
    "yaml": _function(load_all, ValueError),
    "toml": _function(load_toml, ValueError),
    "loader-cache": _function(_loader_cache),
    "kernel-log": _function(_kernel_log),
    "kernel": _function(_kernel),
    "kubelet-state": _function(node_readers.kubelet_state, ValueError),
    "kubelet-file": _function(node_readers.kubelet_configuration, ValueError),
    "pod-resources": _function(node_readers.pod_resources, ValueError),
    "cdi": _function(node_readers.cdi, ValueError),
    "http": _function(node_readers.http_request, ValueError),
}
"""By name; a kept document lies in ``corpus/<name>/``."""
