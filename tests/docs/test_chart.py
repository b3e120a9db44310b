"""The chart's page and the schema of its values are the generated ones."""

import json

import jsonschema
import pytest

from scripts.docs.chart import CHART, NARROW, OPEN, readme, schema, values

# To refresh both: python -m scripts.docs.chart


def test_the_page_is_the_generated_one() -> None:
    assert (CHART / "README.md").read_text("utf-8") == readme()


def test_the_schema_is_the_generated_one() -> None:
    assert json.loads((CHART / "values.schema.json").read_text("utf-8")) == schema()


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
