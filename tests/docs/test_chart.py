"""The chart's page and the schema of its values."""

import jsonschema
import pytest

from scripts.generators.chart import NARROW, OPEN, readme, schema, values


def test_the_values_fulfil_their_schema() -> None:
    jsonschema.validate(values(), schema())


@pytest.mark.parametrize("path", [*OPEN, *NARROW])
def test_every_exception_is_of_a_value_that_exists(path: str) -> None:
    found = values()
    for name in path.split("."):
        found = found[name]


def test_every_value_is_described_by_itself_or_its_group() -> None:
    rows = [line for line in readme().splitlines() if line.startswith("| `")]
    groups = {line.split("`")[1].split(".")[0] for line in rows}
    described = {line.split("`")[1].split(".")[0] for line in rows if not line.endswith("|  |")}
    plain = {"fullnameOverride", "nodeSelector", "affinity", "tolerations", "rbac"}
    plain |= {name for name in groups if name.startswith(("pod", "extra"))}
    assert groups - described <= plain
