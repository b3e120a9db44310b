"""Answers that no API server gives: something in between may."""

from typing import Any

import pytest

from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import part, parts, texts
from tests.components.labels.label_simulation import SimulatedAgent, node
from tests.kubeapi.fake_api_server import FakeApi

ENTRY = {"manager": "x", "operation": "Apply"}


class Broken(FakeApi):
    """A server whose Node has other metadata than it should."""

    metadata: Any = None

    def read(self) -> dict[str, Any]:
        """Return the Node as a GET does."""
        return {"metadata": self.metadata}


@pytest.mark.parametrize(
    "metadata",
    [
        "text",
        ["list"],
        {"labels": ["list"]},
        {"labels": {"a": 5}},
        {"annotations": "text"},
        {"annotations": {"a": None}},
        {"managedFields": 5},
        {"managedFields": [5]},
        {"managedFields": [{**ENTRY, "fieldsV1": "text"}]},
        {"managedFields": [{**ENTRY, "fieldsV1": {"f:metadata": ["list"]}}]},
        {"managedFields": [{**ENTRY, "fieldsV1": {"f:metadata": {"f:labels": 7}}}]},
    ],
)
def test_a_broken_answer_is_a_failure_that_is_tried_again(metadata: Any) -> None:
    api = Broken()
    api.metadata = metadata
    agent = SimulatedAgent(node(api))
    agent.scan()
    agent.run(0)
    assert (agent.labelling.errors, agent.labelling.writes, api.patches) == (1, 0, [])


def test_a_broken_refusal_is_a_failure_too() -> None:
    api = FakeApi()
    agent = SimulatedAgent(node(api))
    api.apply = lambda _query, _body: (409, {"details": "text"})  # type: ignore[assignment,method-assign]
    agent.scan()
    agent.run(0)
    assert (agent.labelling.errors, agent.labelling.writes) == (1, 0)


def test_a_part_of_the_wrong_type_is_unavailable() -> None:
    whole: dict[str, Any] = {"a": {"b": "c"}, "list": [{}], "null": None}
    assert (part(whole, "a"), texts(whole, "a")) == ({"b": "c"}, {"b": "c"})
    assert (part(whole, "null"), part(whole, "none"), parts(whole, "list")) == ({}, {}, ({},))
    with pytest.raises(ApiUnavailable, match="list is no object"):
        part(whole, "list")
    with pytest.raises(ApiUnavailable, match="a is no list of objects"):
        parts(whole, "a")
