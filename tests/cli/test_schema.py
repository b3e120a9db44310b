"""The JSON that other programs rely on has the shape that `docs/reference/schema` promises."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nodetopo.machines.bundled import machine
from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schema"
PROMISED = (
    ("topo-matrix", ("topo", "matrix")),
    ("topo-matrix", ("topo", "matrix", "--nccl")),
    ("topo-tree", ("topo", "tree")),
    ("topo-path", ("topo", "path", "GPU0", "GPU1")),
    ("topo-complexes", ("topo", "complexes")),
    ("labels", ("labels",)),
    ("checks", ("health",)),
    ("checks", ("audit",)),
    ("allocate", ("allocate", "--size", "1")),
    ("allocate", ("allocate", "--size", "4")),
    ("nccl-env", ("nccl", "env")),
)


def _validate(name: str, text: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(text))


def _gpus(command: tuple[str, ...]) -> int:
    """Return how many GPUs *command* needs."""
    return {"GPU1": 2, "4": 4}.get(command[-1], 1)


@pytest.mark.parametrize(
    ("name", "schema", "command"),
    [
        (name, schema, command)
        for name in MACHINES
        for schema, command in PROMISED
        if len(machine(name).gpus) >= _gpus(command)
    ],
)
def test_a_machine_prints_what_the_schema_promises(
    cli: Cli,
    name: str,
    schema: str,
    command: tuple[str, ...],
) -> None:
    _validate(schema, cli(*command, "--machine", name, "-o", "json").out)


@pytest.mark.parametrize(("schema", "command"), PROMISED)
def test_a_partial_source_prints_what_the_schema_promises(
    cli: Cli,
    schema: str,
    command: tuple[str, ...],
) -> None:
    text = cli("topo", "matrix", "--machine", "dgx-h100").out
    _validate(schema, cli(*command, "--topo-m", "-", "-o", "json", stdin=text).out)


def test_the_list_of_clusters_is_what_the_schema_promises(cli: Cli) -> None:
    _validate("clusters", cli("simulate", "clusters", "-o", "json").out)


def test_the_list_of_machines_is_what_the_schema_promises(cli: Cli) -> None:
    _validate("machines", cli("simulate", "machines", "-o", "json").out)
