"""Which nodes reach the devices of slices that name no node."""

from typing import Any

import pytest

from nodetopo.tools.cluster.node import ClusterNode
from nodetopo.tools.cluster.reach import reaches, seen_from

NODE = ClusterNode(name="n1", labels={"rack": "7", "size": "8", "empty": ""})


def selecting(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeSelector": {"nodeSelectorTerms": list(terms)}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("part", "is_reached"),
    [
        ({"nodeName": "n1"}, True),
        ({"nodeName": "n2"}, False),
        ({"allNodes": True}, True),
        ({}, False),
        (selecting(expression("rack", "In", "6", "7")), True),
        (selecting(expression("rack", "In", "6")), False),
        (selecting(expression("rack", "NotIn", "6")), True),
        (selecting(expression("other", "NotIn", "6")), True),
        (selecting(expression("rack", "Exists")), True),
        (selecting(expression("other", "Exists")), False),
        (selecting(expression("other", "DoesNotExist")), True),
        (selecting(expression("empty", "DoesNotExist")), False),
        (selecting(expression("size", "Gt", "7")), True),
        (selecting(expression("size", "Lt", "8")), False),
        (selecting(expression("other", "Gt", "1")), False),
        (selecting(expression("size", "Gt", "x")), False),
        (selecting(expression("size", "Like", "8")), False),
        (selecting({}), False),
        (selecting(), False),
        (selecting(expression("rack", "In", "6"), expression("rack", "In", "7")), True),
        (
            selecting(
                {
                    **expression("rack", "In", "7"),
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
                }
            ),
            False,
        ),
    ],
)
def test_a_node_is_selected_as_by_node_affinity(part: dict[str, Any], *, is_reached: bool) -> None:
    assert reaches(NODE, part) is is_reached


def test_with_selection_per_device_a_node_sees_its_own_devices() -> None:
    devices = [{"name": "a", "nodeName": "n1"}, {"name": "b", "nodeName": "n2"}, {"name": "c"}]
    each = {"spec": {"driver": "d", "perDeviceNodeSelection": True, "devices": devices}}
    seen = seen_from(NODE, each)
    assert seen is not None
    assert [it["name"] for it in seen["spec"]["devices"]] == ["a"]
    assert seen_from(ClusterNode(name="n9", labels={}), each) is None


def test_what_is_malformed_is_reached_by_none() -> None:
    assert seen_from(NODE, {"spec": 3}) is None
