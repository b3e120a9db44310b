"""``nodetopo support``: a redacted archive for support with a node."""

import platform
from argparse import Namespace
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from importlib import metadata
from typing import Any

from msgspec import Struct, field

from nodetopo import __version__
from nodetopo.checks.engine import evaluate, report_to_plain
from nodetopo.checks.rule import Suite
from nodetopo.cli.capture import hosts, summary
from nodetopo.cli.files import STDIO, read_text
from nodetopo.cli.output import Style, escaped, json_text, note
from nodetopo.cli.settings import resolved
from nodetopo.cli.source import files_of, is_live, load, settings
from nodetopo.cli.topo.rows import legend
from nodetopo.cli.topo.rows import text as matrix_text
from nodetopo.cli.writing import write_private
from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.rules import LabelRules
from nodetopo.deviceplugin.host_files import HostFile
from nodetopo.errors import AgentError, InputError
from nodetopo.formats.responses import EndlessError, body_of
from nodetopo.formats.support_archive import SNAPSHOT, pack
from nodetopo.kernel.log_writer import LOG_FILE, OLDER
from nodetopo.kernel.settings.declare import default, key, options
from nodetopo.kernel.settings.kept import SETTINGS_FILE, settings_to_plain
from nodetopo.kernel.settings.values import shown
from nodetopo.model import strict_json
from nodetopo.model.codec import encode
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.scrub import Substitutes, scrubbed
from nodetopo.tools.capture.scrub_text import TextScrubber
from nodetopo.tools.capture.substitutes import LEFT_OUT
from nodetopo.tools.node_rules import node_rules
from nodetopo.topology.matrix import matrix

LIBRARIES = (
    "grpcio",
    "kubernetes",
    "nvidia-ml-py",
    "prometheus-client",
    "protobuf",
    "pyyaml",
    "structlog",
    "urllib3",
)
"""Of which the version is noted: all that the package depends on."""

MAX_LOG = 1 << 20
"""Bytes of a log that are taken, from its end."""

MAX_LINES = 2000
"""Lines of a log that are taken, from its end."""

MAX_ANSWER = 4 << 20
"""Bytes of an answer of the daemon's server; 16 GPUs with MIG have some 100 KB of metrics."""

TIMEOUT_S = 2.0
"""For an answer of the daemon's server, which has everything in memory."""


class _Archive(Struct):
    """The collected files, and reasons for missing ones."""

    files: dict[str, bytes] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, content: Callable[[], str]) -> None:
        """Add the file *name*; a failure only leaves this file out."""
        try:
            self.files[name] = content().encode("utf-8", "replace")
        except AgentError as error:
            self.missing[name] = error.cause


def run(args: Namespace) -> int:
    """Write the archive; 0, or 3 when NVML did not answer and the GPUs are missing from it.

    Raises:
        InputError: the source cannot be used, or the archive not be written.
    """
    # Keeps the other commands fast.

    if args.log == STDIO and STDIO in files_of(args):
        raise InputError("standard input is named twice", "save one of them in a file")
    is_of_node = is_live(args)
    original = load(args, needs_gpus=False, in_full=True, pods=True)
    substitutes = Substitutes()
    snapshot, _done = scrubbed(original, substitutes, hosts() if is_of_node else ())
    scrubber = TextScrubber(substitutes)

    archive = _Archive()
    archive.add(SNAPSHOT, lambda: escaped(encode(snapshot)))
    _add_answers(archive, snapshot)
    archive.add("versions.json", lambda: json_text(_versions(snapshot)))
    archive.add("log.txt", lambda: _log(args, scrubber, is_of_node=is_of_node))
    archive.add("settings.json", lambda: _settings(args, scrubber, is_of_node=is_of_node))
    for name, path in (("metrics.txt", "/metrics"), ("readyz.txt", "/readyz")):
        archive.add(
            name,
            lambda path=path: _served(args, path, scrubber, is_of_node=is_of_node),  # type: ignore[misc]
        )
    done = (*substitutes.summary(), f"{scrubber.secrets} credentials left out")
    moment = snapshot.captured_at
    manifest = {
        "captured_at": None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "source": "live node" if is_of_node else "file or bundled machine",
        "redacted": list(done),
        "missing": {name: scrubber.text(text) for name, text in archive.missing.items()},
        "unread": [scrubber.text(unread.line) for unread in args.unread],
    }
    content = pack(archive.files, manifest, 0 if moment is None else int(moment.timestamp()))
    write_private(args.output, content)
    for text in done:
        note("note", text)
    for name, reason in archive.missing.items():
        note("note", f"without {name}: {reason}")
    if args.output != STDIO:
        held = ", ".join(["manifest.json", *sorted(archive.files)])
        note(
            "wrote", f"{args.output}: {len(content) + 1023 >> 10} KiB, {summary(snapshot)}: {held}"
        )
    return 3 if args.incomplete else 0


def _add_answers(archive: _Archive, snapshot: Snapshot) -> None:
    """Add the commands' answers about *snapshot*, which has been scrubbed."""
    for suite in Suite:
        if not (rules := node_rules(suite)):
            continue
        report = evaluate(snapshot, rules)
        archive.add(f"{suite.value}.json", lambda report=report: json_text(report_to_plain(report)))  # type: ignore[misc]
    archive.add("labels.json", lambda: json_text(labels(snapshot, LabelRules())))
    closeness_matrix = matrix(snapshot)
    archive.add(
        "matrix.txt",
        lambda: (
            matrix_text(closeness_matrix, snapshot, Style(is_on=False)) + legend(closeness_matrix)
        ),
    )


def _versions(snapshot: Snapshot) -> dict[str, Any]:
    """Return the versions of this program, its dependencies, and the node's software."""
    status, kernel = snapshot.node_status, snapshot.kernel
    return {
        "nodetopo": __version__,
        "python": platform.python_version(),
        "libraries": {name: _installed(name) for name in LIBRARIES},
        "kernel": None if kernel is None else kernel.release,
        "driver": snapshot.driver_version,
        "nvml": snapshot.nvml_version,
        "cuda": None if snapshot.cuda_version is None else list(snapshot.cuda_version),
        "kubelet": snapshot.kubelet_version,
        "container_runtime": None if status is None else status.container_runtime,
    }


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _log(args: Namespace, scrubber: TextScrubber, *, is_of_node: bool) -> str:
    """Return the last lines of the log that ``--log`` names, or that the daemon keeps."""
    if args.log is not None:
        lines = read_text(args.log).splitlines()
    else:
        newer = _beside_health_file(args, LOG_FILE, is_of_node=is_of_node)
        try:
            older = _beside_health_file(args, LOG_FILE + OLDER, is_of_node=is_of_node)
        except AgentError:
            older = ""
        lines = (older + newer)[-MAX_LOG:].splitlines()
    return scrubber.log(lines[-MAX_LINES:])


def _settings(args: Namespace, scrubber: TextScrubber, *, is_of_node: bool) -> str:
    """Return the daemon's settings with their origins, or else this command's."""
    whose = "the daemon, when it started"
    try:
        text = _beside_health_file(args, SETTINGS_FILE, is_of_node=is_of_node)
        found: Mapping[str, Mapping[str, str]] = strict_json.loads(text)
    except ValueError:
        raise InputError(f"{SETTINGS_FILE} of the daemon is not JSON") from None
    except AgentError:
        if not is_of_node:
            raise
        whose, found = "this command", settings_to_plain(resolved(args))
    paths = {
        key(name): shown(default(name))
        for name, option in options().items()
        if option.metavar in ("FILE", "DIR", "PATH")
    }
    kept: dict[str, dict[str, str]] = {}
    for name, entry in found.items():
        value = str(entry["value"])
        is_odd = name in paths and value not in (paths[name], "none")
        origin = str(entry["origin"]).partition(" /")[0]  # a file's place is a path too
        kept[name] = {
            "value": LEFT_OUT if is_odd else scrubber.plain(value, name),
            "origin": scrubber.text(origin),
        }
    return json_text({"of": whose, "settings": kept})


def _beside_health_file(args: Namespace, name: str, *, is_of_node: bool) -> str:
    """Return the text of the file *name* in the daemon's state directory."""
    if not is_of_node:
        raise InputError("the source is no live node")
    directory = settings(args).health_file
    if directory is None:
        raise InputError("health-file is none, so the daemon keeps nothing")
    path = directory.with_name(name)
    found = HostFile(path).read()
    if found.data is None:
        raise InputError(found.problem or f"{path}: there is no such file")
    return found.data.decode("utf-8", "replace")


def _served(args: Namespace, path: str, scrubber: TextScrubber, *, is_of_node: bool) -> str:
    """Return the daemon's answer at *path*."""
    if not is_of_node:
        raise InputError("the source is no live node")
    address = settings(args).metrics_address
    if address is None:
        raise InputError("metrics-address is none, so the daemon serves nothing")
    host, _colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    connection = HTTPConnection(
        "127.0.0.1" if host in ("", "0.0.0.0", "::") else host,  # noqa: S104 - not listened on
        int(port),
        timeout=TIMEOUT_S,
    )
    try:
        connection.request("GET", path)
        answer = body_of(connection.getresponse(), MAX_ANSWER, TIMEOUT_S)
    except (OSError, HTTPException, EndlessError) as error:
        raise InputError(f"no answer from {address}: {error}") from None
    finally:
        connection.close()
    return scrubber.metrics(answer.decode("utf-8", "replace"))
