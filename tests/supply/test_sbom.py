"""The bill of materials: what the lock has, in the form that CycloneDX asks for."""

import json
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

import nodetopo
from scripts.supply.sbom import LOCK, document, pins


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return document()


def schema(name: str) -> dict[str, Any]:
    text = files("cyclonedx.schema").joinpath("_res", f"{name}.SNAPSHOT.schema.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def test_it_is_valid_cyclonedx(bill: dict[str, Any]) -> None:
    others = [schema(name) for name in ("spdx", "jsf-0.82")]
    registry: Registry[Any] = Registry().with_resources(
        [(other["$id"], Resource.from_contents(other)) for other in others],
    )
    errors = Draft7Validator(schema("bom-1.6"), registry=registry).iter_errors(bill)
    assert [error.message for error in errors] == []


def test_it_lists_what_the_lock_pins_with_the_same_hashes(bill: dict[str, Any]) -> None:
    lock = LOCK.read_text("utf-8")
    listed = {f"{entry['name']}=={entry['version']}" for entry in bill["components"]}
    assert listed == set(re.findall(r"^\S+==\S+", lock, re.MULTILINE))
    hashes = Counter(
        found["content"]
        for entry in bill["components"]
        for reference in entry["externalReferences"]
        for found in reference["hashes"]
    )
    assert hashes == Counter(re.findall(r"sha256:(\w{64})", lock))


def test_everything_listed_is_needed_by_something_listed(bill: dict[str, Any]) -> None:
    edges = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    reached, left = set(), [bill["metadata"]["component"]["bom-ref"]]
    while left:
        ref = left.pop()
        if ref not in reached:
            reached.add(ref)
            left += edges[ref]
    assert reached == edges.keys()
    assert bill["metadata"]["component"]["version"] == nodetopo.__version__


def test_every_package_states_its_licence(bill: dict[str, Any]) -> None:
    assert [entry["name"] for entry in bill["components"] if "licenses" not in entry] == []


def test_it_is_the_same_each_time(bill: dict[str, Any]) -> None:
    assert json.dumps(document()) == json.dumps(bill)


@pytest.mark.parametrize("line", ["grpcio==1.2.3", "grpcio>=1 --hash=sha256:00", "./wheel.whl"])
def test_a_package_without_version_and_hash_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "lock").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=re.escape(line)):
        pins(tmp_path / "lock")
