import json
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import Struct
from msgspec.structs import fields, replace

from nodetopo import model
from nodetopo.errors import DecodeError
from nodetopo.machines.bundled import machine, names
from nodetopo.model.codec import MAX_BYTES, MAX_DEPTH, decode, encode
from nodetopo.model.snapshot import SCHEMA, Snapshot
from tests.budget import cases
from tests.strategies import snapshots

NOTHING: dict[str, Any] = {"schema": SCHEMA}
CURE = "capture the node again with `nodetopo capture`, or correct the file"


@settings(max_examples=cases(30, 300), deadline=None)
@given(snapshot=snapshots())
def test_decoding_an_encoded_snapshot_gives_it_back(snapshot: Snapshot) -> None:
    assert decode(encode(snapshot)).snapshot == snapshot


@settings(max_examples=cases(20, 200), deadline=None)
@given(snapshot=snapshots())
def test_encoding_a_decoded_document_gives_it_back(snapshot: Snapshot) -> None:
    text = encode(snapshot)
    assert encode(decode(text).snapshot) == text


@pytest.mark.parametrize("name", names())
def test_bundled_machines_round_trip_without_warnings(name: str) -> None:
    decoded = decode(encode(machine(name)))
    assert (decoded.snapshot, decoded.warnings) == (machine(name), ())


def test_what_is_unknown_is_left_out_of_the_document() -> None:
    assert json.loads(encode(Snapshot(node="n1"))) == {**NOTHING, "node": "n1"}


def test_an_empty_part_is_not_an_unread_part() -> None:
    assert decode(encode(Snapshot(hcas=()))).snapshot == Snapshot(hcas=())


def problem(document: object) -> str:
    """The message for a broken document, without the cure."""
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(DecodeError) as caught:
        decode(text)
    assert caught.value.cure == CURE
    return caught.value.cause


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"gpus": [{"index": 0, "pci": "x"}]}, "gpus[0].pci: not a PCI address: 'x'"),
        ({"gpus": [{"index": True}]}, "gpus[0].index: expected a whole number, found true"),
        ({"gpus": [{}]}, "gpus[0].index: missing"),
        ({"gpus": {}}, "gpus: expected a list, found {}"),
        ({"gpus": [3]}, "gpus[0]: expected an object, found 3"),
        ({"gpus": None}, "gpus: expected a list, found null"),
        ({"node": 7}, "node: expected a text, found 7"),
        ({"cuda_version": [13]}, "cuda_version: expected 2 values, found 1"),
        (
            {"gpus": [{"index": 0, "compute_capability": [9, "x"]}]},
            'gpus[0].compute_capability[1]: expected a whole number, found "x"',
        ),
        (
            {"gpus": [{"index": 0, "cpu_affinity": "0-"}]},
            "gpus[0].cpu_affinity: not a CPU list: '0-'",
        ),
        (
            {"pairs": [{"a": "GPU0", "b": "GPU1", "closeness": "NEAR"}]},
            'pairs[0].closeness: expected one of INTERNAL, PIX, PXB, PHB, NODE, SYS, found "NEAR"',
        ),
        (
            {"kernel": {"sysctls": {"vm.x": 1}}},
            "kernel.sysctls: expected a text, found 1",
        ),
        (
            {"gpus": [{"index": 1}, {"index": 1}]},
            "gpus[1].index: indices must ascend",
        ),
        (
            {"gpus": [{"index": 0, "uuid": "U"}, {"index": 1, "uuid": "U"}]},
            "gpus[1].uuid: a second GPU is 'U'",
        ),
        (
            {"nvlinks": [{"gpu": 0, "link": 0, "is_active": True}]},
            "nvlinks[0].gpu: no GPU has index 0",
        ),
        ({"captured_at": "now"}, "captured_at: time data 'now' does not match"),
    ],
)
def test_a_broken_document_is_refused_with_the_path(part: dict[str, Any], message: str) -> None:
    assert problem({**NOTHING, **part}).startswith(message)


@pytest.mark.parametrize("schema", [None, "nodetopo/v2", 1])
def test_another_schema_is_refused(schema: object) -> None:
    assert problem({"schema": schema}) == f"schema: expected {SCHEMA!r}, found {schema!r}"


@pytest.mark.parametrize("text", ["", "[", "nul", '{"a": 1} x'])
def test_what_is_not_json_is_refused(text: str) -> None:
    assert problem(text).startswith("not JSON: ")


def test_a_document_that_is_no_object_is_refused() -> None:
    assert problem("[]") == "not a snapshot: the document is not a JSON object"


def test_a_document_over_the_size_limit_is_refused_unread() -> None:
    assert problem(" " * (MAX_BYTES + 1)) == "larger than 16 MiB"


def test_a_document_over_the_depth_limit_is_refused() -> None:
    deep = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    assert problem(f'{{"schema": "{SCHEMA}", "x": {deep}}}') == "nested deeper than 20 levels"


def test_a_document_that_exhausts_the_parser_is_refused() -> None:
    assert problem("[" * 200_000).startswith("not JSON: ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_are_refused(number: str) -> None:
    assert problem(f'{{"schema": "{SCHEMA}", "x": {number}}}') == (
        f"not JSON: {number} is no JSON number"
    )


def test_an_absurdly_long_number_is_refused() -> None:
    assert problem(f'{{"schema": "{SCHEMA}", "x": {"9" * 5000}}}').startswith("not JSON: ")


def test_a_whole_number_too_large_for_a_rate_is_refused() -> None:
    hca = {"name": "mlx5_0", "ports": [{"number": 1, "rate_gbps": 10**400}]}
    assert problem({**NOTHING, "hcas": [hca]}).startswith("hcas[0].ports[0].rate_gbps: ")


def test_half_a_character_is_no_text() -> None:
    assert problem('{"schema": "nodetopo/v1", "node": "\\ud800"}') == (
        "node: not Unicode text: '\\ud800'"
    )


def test_fields_of_a_newer_version_are_dropped_with_a_warning() -> None:
    plain = json.loads(encode(replace(machine("dgx-1v"), node="n1")))
    plain["weather"] = "fine"
    plain["gpus"][2]["colour"] = "green"
    decoded = decode(json.dumps(plain))
    assert (decoded.snapshot, sorted(decoded.warnings)) == (
        replace(machine("dgx-1v"), node="n1"),
        ["gpus[2].colour: unknown field, ignored", "weather: unknown field, ignored"],
    )


@pytest.mark.parametrize("time", ["2026-11-01", "2026-11-01T00:00:00", "2026-11-01T00:00:00+00:00"])
def test_a_time_in_another_format_is_refused(time: str) -> None:
    assert problem({**NOTHING, "captured_at": time}).startswith("captured_at: time data")


def test_records_have_no_quoted_types_of_fields() -> None:
    """The decoder uses the type of a field as it stands in the class."""
    modules = [import_module(f"nodetopo.model.{it.name}") for it in iter_modules(model.__path__)]
    names = [it for module in modules for it in vars(module).values()]
    records = [it for it in names if isinstance(it, type) and issubclass(it, Struct)]
    assert len(records) > 40
    assert not [field for it in records for field in fields(it) if isinstance(field.type, str)]


def test_the_decoder_does_not_import_what_it_rarely_needs() -> None:
    script = "import sys, nodetopo.model.codec; print({'difflib', '_strptime'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
