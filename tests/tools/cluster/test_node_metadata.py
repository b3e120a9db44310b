"""A Node's metadata, read."""

from typing import Any

import pytest

from nodetopo.errors import DecodeError
from nodetopo.tools.cluster.node import ClusterNode, cluster_node


def entry(manager: str, *keys: str, operation: str = "Apply") -> dict[str, Any]:
    fields: dict[str, Any] = {
        "f:metadata": {"f:labels": {".": {}, **{f"f:{key}": {} for key in keys}}}
    }
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def test_every_manager_of_a_label_is_named_and_labels_that_are_gone_are_not() -> None:
    managed = [
        entry("nodetopo", "a/one", "a/two"),
        entry("nfd-master", "a/two", "a/gone", operation="Update"),
        {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}},
        {"manager": "silent", "operation": "Apply"},
    ]
    labels = {"a/one": "1", "a/two": "2", "a/three": ""}
    assert cluster_node({"name": "n", "labels": labels, "managedFields": managed}) == ClusterNode(
        name="n",
        labels=labels,
        owners={"a/one": ("nodetopo",), "a/two": ("nfd-master", "nodetopo")},
    )


def test_owners_that_nobody_told_are_unknown() -> None:
    assert cluster_node({"name": "n"}) == ClusterNode(name="n", labels={}, owners=None)
    assert cluster_node({"name": "n", "labels": None, "managedFields": []}).owners == {}


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        (None, ""),
        ([], ""),
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"name": "n", "labels": ["a"]}, "labels"),
        ({"name": "n", "labels": {"a/one": 1}}, "labels.a/one"),
        ({"name": "n", "managedFields": {}}, "managedFields"),
        ({"name": "n", "managedFields": ["x"]}, "managedFields[0]"),
        ({"name": "n", "managedFields": [{"fieldsV1": 1}]}, "managedFields[0].fieldsV1"),
        (
            {"name": "n", "managedFields": [{"fieldsV1": {"f:metadata": {"f:labels": 1}}}]},
            "managedFields[0].fieldsV1.f:metadata.f:labels",
        ),
    ],
)
def test_broken_metadata_is_refused_with_its_path(metadata: object, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        cluster_node(metadata)
    assert caught.value.path == path
