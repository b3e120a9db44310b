"""Attributes of zones hold what the kubelet's configuration says, whoever wrote that."""

import json

import pytest

from nodetopo.components.zones.node_resource_topology import attributes, content
from nodetopo.model.kubelet import KubeletSettings
from tests.test_hostile_strings import HOSTILE, check_line


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_the_attributes_of_zones_are_harmless_lines(hostile: str) -> None:
    kubelet = KubeletSettings(
        source="x",
        topology_manager_policy=hostile,
        topology_manager_scope=hostile,
        cpu_manager_policy=hostile,
        memory_manager_policy=hostile,
        topology_manager_options={"max-allowable-numa-nodes": hostile},
    )
    found = attributes(kubelet, ())
    for value in found.values():
        check_line(value)
    json.dumps(content((), found)).encode()
