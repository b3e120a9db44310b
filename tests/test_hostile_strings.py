"""Strings of others, in every place that they end up in: harmless there, whatever they hold.

They come from firmware and drivers (NVML, sysfs), pods, other plugins, the kubelet, the API server,
files and their names.
"""

import io
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import structlog
from msgspec import Struct, structs
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families

from nodetopo.cli.main import main
from nodetopo.cli.output import note, table
from nodetopo.components.gpus.readiness import not_ready
from nodetopo.components.labels.label import label_value, marked
from nodetopo.components.labels.loop import desired_labels
from nodetopo.components.labels.rules import LabelRules
from nodetopo.errors import UnreadableError
from nodetopo.formats.harmless import clean, harmless
from nodetopo.formats.names import PART
from nodetopo.kernel import logs
from nodetopo.kernel.component import joined
from nodetopo.kernel.events import (
    EventPublisher,
    NodeEvent,
    PodEvent,
    Waiting,
    event_name,
    utc_now,
)
from nodetopo.kernel.http.server import _ReadingsCollector
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.model.gpu_health import GpuHealth
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.container import container_xml
from tests.kernel.readings import readings

HOSTILE: Mapping[str, str] = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "cursor": "a\x1b[2J\x1b[1;1Hb",
    "C1": "\x9b31mred\x85next",
    "lines": "one\ntwo\r\nthree\u2028four\u2029five\x0bsix\x0cseven",
    "injected": 'x"} 1\nnodetopo_up{gpu="0',
    "yaml": "a: b\n- c # d",
    "NUL": "a\x00b",
    "bell and backspace": "a\x07\x08\x7fb",
    "right to left": "a\u202egpj.exe\u2066b\u200f",
    "invisible": "a\u200b\u2060\ufeffb\U000e0041",
    "half a character": "a\ud800b\udcffc",
    "private and unassigned": "a\ue000\U0010ffffb",
    "markup": "<script>alert(1)</script>&amp;<!--",
    "long": "\x1b[31m" + "x" * (1 << 20),
    "long lines": "y\n" * (1 << 19),
}

LONGEST = 20_000
"""Characters of what one line of hostile text may become anywhere."""

STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> str:
    return HOSTILE[request.param]


def steers(text: str, allowed: str = "\n") -> list[str]:
    """Return the characters of *text* that steer a terminal, or that no UTF-8 has."""
    return [
        repr(char)
        for char in sorted(set(text) - set(allowed))
        if unicodedata.category(char) in STEERING
    ]


def check_line(text: str) -> None:
    """Hold that *text* is one harmless line of a sane length."""
    assert steers(text, "") == []
    assert len(text) <= LONGEST
    text.encode()


@cache
def poisoned(name: str) -> Snapshot:
    """Return a machine all whose texts are the hostile one *name*, apart by a number."""
    found = poison(machine("dgx-h100"), HOSTILE[name], iter(range(1 << 20)))
    assert isinstance(found, Snapshot)
    return found


def poison(value: Any, text: str, numbers: Iterator[int]) -> Any:
    """Return *value* with every text in it replaced."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return f"{text}{next(numbers)}"
    if isinstance(value, tuple):
        return tuple(poison(item, text, numbers) for item in value)
    if isinstance(value, Struct):
        fields = {
            name: poison(getattr(value, name), text, numbers) for name in value.__struct_fields__
        }
        try:
            return structs.replace(value, **fields)
        except (ValueError, TypeError):  # a type of its own that takes no such text
            return value
    return value


NAMES = [name for name in HOSTILE if not name.startswith("long")]
"""Without those that multiply to gigabytes on a whole machine."""


# Labels and annotations.


def test_a_label_value_is_valid_or_there_is_none(hostile: str) -> None:
    for value in (label_value(hostile), marked(hostile, ["SHARED"])):
        assert value is None or re.fullmatch(PART, value, re.ASCII)


@pytest.mark.parametrize("name", NAMES)
def test_the_labels_and_annotations_of_a_machine_are_valid(name: str) -> None:
    desired = desired_labels(poisoned(name), LabelRules())
    assert desired.labels
    for key, value in desired.labels.items():
        assert re.fullmatch(f"[a-z.]+/{PART}", key, re.ASCII), key
        assert re.fullmatch(f"({PART})?", value, re.ASCII), value
    for value in (desired.annotations or {}).values():
        check_line(value)


# Metrics and probes.


def exposition(state: Mapping[str, object], accept: str) -> str:
    registry = CollectorRegistry()
    registry.register(_ReadingsCollector(lambda: state))
    encode_page, _ = choose_encoder(accept)
    return str(encode_page(registry).decode())


@pytest.mark.parametrize(
    "accept", ["text/plain", "application/openmetrics-text; version=1.0.0; charset=utf-8"]
)
def test_a_scrape_is_sound(hostile: str, accept: str) -> None:
    gpu = machine("dgx-h100").gpus[0]
    state = readings(
        replace(
            machine("dgx-h100"),
            node=hostile,
            driver_version=hostile,
            gpus=(replace(gpu, uuid=hostile, product=hostile),),
        ),
        registrations={hostile: 1},
        is_registered={hostile: True},
        conflicts={hostile: hostile},
        devices={hostile: {"healthy": 1}},
        allocations={hostile: 1},
        checks_broken={"health": {hostile: "fail"}},
        health={hostile: GpuHealth(is_healthy=False, reason=hostile, said=hostile)},
        xid_counts={(hostile, 79): 1},
        config=hostile,
        pods_misaligned={hostile: 1},
    )
    page = exposition(state, accept)
    assert steers(page) == []
    assert max(map(len, page.splitlines())) <= LONGEST
    names = {family.name for family in text_string_to_metric_families(page.replace("# EOF\n", ""))}
    assert all(re.fullmatch("(nodetopo|process)_[a-z0-9_]+", name) for name in names), names


def test_a_probe_answers_one_harmless_line_for_each_reason(hostile: str) -> None:
    reasons = not_ready(
        snapshot=machine("dgx-h100"),
        nvml=NvmlStatus(trouble=NvmlTrouble.REFUSED, failures=9, cause=hostile),
        is_registered={hostile: False, "b": False},
        conflicts={"b": hostile},
        refusals=[hostile],
        cdi_problem=hostile,
    )
    text = joined(reasons)
    assert text is not None
    lines = text.split("\n")
    assert len(lines) == 5
    for line in lines:
        check_line(line)
        assert re.match(r"[A-Z][A-Za-z]+: ", line)


# Events and objects of the API server.


def test_an_event_is_one_harmless_line(hostile: str) -> None:
    writer = EventPublisher(None, "gpu-1", now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    event = NodeEvent(reason="X", message=hostile, is_warning=True, key=hostile)
    body = writer.body(Waiting(event, 1000, 0.0, utc_now()), {}, {})
    check_line(body["message"])
    assert len(body["message"].encode()) <= 1024
    assert re.fullmatch(r"gpu-1\.[0-9a-f]{16}", event_name("gpu-1", hostile))


def test_an_event_about_a_pod_reaches_no_other_path(hostile: str) -> None:
    from nodetopo.kernel.events import PodEventPublisher  # noqa: PLC0415
    from tests.bench.soak import EventsApi  # noqa: PLC0415

    asked = []

    class Recorded(EventsApi):
        def _send(self, method: str, path: str, *rest: Any, **more: Any) -> Any:
            asked.append((method, path))
            return super()._send(method, path, *rest, **more)

    event = PodEvent(
        reason="X",
        message=hostile,
        is_warning=True,
        key="u",
        namespace=f"../{hostile}",
        pod=hostile,
        uid="u",
    )
    PodEventPublisher(None, "gpu-1").write(Recorded(), Waiting(event, 1, 0.0, utc_now()))
    ((method, path),) = asked
    assert method == "POST"
    assert re.fullmatch(r"/api/v1/namespaces/[A-Za-z0-9%._~-]+/events", path, re.ASCII)


# The log.


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], io.StringIO]]:
    """Configure the log in a format; return where it is written."""
    before = structlog.get_config()

    def configure(form: str) -> io.StringIO:
        written = io.StringIO()
        monkeypatch.setattr(sys, "stderr", written)
        logs.configure(form, "info")
        return written

    yield configure
    structlog.configure(**before)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_of_the_log_is_one_harmless_line(
    log: Callable[[str], io.StringIO], hostile: str, form: str
) -> None:
    written = log(form)
    structlog.get_logger().warning(
        hostile, plain=hostile, inside=[hostile, (hostile,)], keyed={hostile: {"a": hostile}}
    )
    (line,) = written.getvalue().splitlines()
    assert steers(line, "") == []
    assert len(line) <= 10 * LONGEST
    if form == "json":
        assert steers("".join(texts(json.loads(line))), "") == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_in_the_log_steers_nothing(
    log: Callable[[str], io.StringIO], hostile: str, form: str
) -> None:
    written = log(form)
    try:
        int("x")
    except ValueError as error:
        error.args = (hostile,)
        structlog.get_logger().exception("failed", what=hostile)
    assert steers(written.getvalue()) == []
    assert "ValueError" in written.getvalue()


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *texts(item))
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


# The terminal.


def test_an_error_is_one_harmless_line(capsys: pytest.CaptureFixture[str], hostile: str) -> None:
    note("error", hostile)
    (line,) = capsys.readouterr().err.splitlines()
    check_line(line)


def test_a_table_has_a_line_for_each_row(hostile: str) -> None:
    text = table([(hostile, "a"), ("b", hostile)])
    assert text.count("\n") == 2
    assert steers(text) == []


COMMANDS = (
    *(("topo", "matrix", "-o", form) for form in ("table", "short", "json", "yaml", "svg")),
    *(("topo", "tree", "-o", form) for form in ("table", "json", "svg")),
    ("topo", "path", "GPU0", "GPU1"),
    *(("labels", "-o", form) for form in ("table", "short", "json", "yaml")),
    *(("health", "-o", form) for form in ("table", "json", "yaml")),
    *(("audit", "-o", form) for form in ("table", "json", "yaml")),
    ("allocate", "--size", "2", "--explain"),
    ("allocate", "--size", "2", "-o", "json"),
    ("nccl", "xml"),
    ("nccl", "env"),
)


@pytest.mark.parametrize("name", NAMES)
def test_no_command_prints_what_a_snapshot_says_raw(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(encode(poisoned(name)), "utf-8", "surrogatepass")
    for command in COMMANDS:
        assert main([*command, "--snapshot", str(path)]) in range(4), command
        shown = capsys.readouterr()
        for text in (shown.out, shown.err):
            assert steers(text, "\n\t") == [], command


def test_a_name_of_a_file_is_printed_as_one_harmless_line(
    capsys: pytest.CaptureFixture[str], hostile: str
) -> None:
    assert main(["topo", "matrix", "--snapshot", f"/nowhere/{hostile}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    check_line(line)


# Files that others read.


@pytest.mark.parametrize("name", NAMES)
def test_nccls_file_is_not_written_with_a_name_that_it_cannot_hold(name: str) -> None:
    with pytest.raises(UnreadableError, match="cannot stand in a file for NCCL"):
        container_xml(poisoned(name))


# The functions themselves.


def test_a_long_text_keeps_its_start_and_its_end() -> None:
    assert harmless("a" * 50 + "b" * 50, 11) == "aaaaa…bbbbb"
    assert harmless("short", 11) == "short"


def test_what_is_harmless_stays_as_it_is() -> None:
    for text in ("GPU-0", "größe", "漢字", "naïve — 8 H100", ""):
        assert clean(text) == text
