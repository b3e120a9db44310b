"""The object as plain data, and whose it is."""

from typing import Any

import pytest

from nodetopo.components.zones.node_resource_topology import (
    attributes,
    content,
    has_content,
    is_marked,
)
from nodetopo.components.zones.zones import Zone, ZoneResource
from tests.components.zones.machines import GPU

MEMORY_ONLY = Zone(
    id=3,
    resources=(ZoneResource(name="memory", capacity=5 << 30, allocatable=4 << 30, available=0),),
    costs={},
)
FULL = Zone(
    id=0,
    resources=(ZoneResource(name=GPU, capacity=4, allocatable=4, available=1),),
    costs={0: 10, 3: 40},
)


def test_zones_are_written_as_schedulers_read_them() -> None:
    assert content((FULL, MEMORY_ONLY), {"a": "b"}) == {
        "attributes": [{"name": "a", "value": "b"}],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}, {"name": "node-3", "value": 40}],
                "resources": [{"name": GPU, "capacity": "4", "allocatable": "4", "available": "1"}],
            },
            {
                "name": "node-3",
                "type": "Node",
                "resources": [
                    {
                        "name": "memory",
                        "capacity": "5368709120",
                        "allocatable": "4294967296",
                        "available": "0",
                    }
                ],
            },
        ],
    }


def test_an_object_of_ours_is_known_by_its_attributes() -> None:
    ours = content((FULL,), attributes(None, ()))
    assert (has_content(ours), is_marked(ours)) == (True, True)


@pytest.mark.parametrize(
    "theirs",
    [
        {"zones": [{"name": "node-0", "type": "Node"}]},
        {"attributes": [{"name": "topologyManagerPolicy", "value": "none"}], "zones": []},
        {"topologyPolicies": ["SingleNUMANodePodLevel"]},
        {"attributes": [{"name": "publisher", "value": "somebody"}]},
        {"attributes": "publisher"},
        {"attributes": [["publisher", "nodetopo"]]},
    ],
)
def test_an_object_of_others_is_not_taken_for_ours(theirs: dict[str, Any]) -> None:
    assert (has_content(theirs), is_marked(theirs)) == (True, False)


def test_an_empty_object_is_nobodys() -> None:
    assert not has_content({"metadata": {"name": "gpu-1"}, "zones": [], "attributes": None})
