"""Nodes as the files and lists that `nodetopo doctor` reads."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nodetopo.tools.cluster.node import ClusterNode


def item(node: ClusterNode) -> dict[str, Any]:
    """Return *node* as the API server has it."""
    managed = [
        {"manager": manager, "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {}}}}}
        for key, managers in (node.owners or {}).items()
        for manager in managers
    ]
    metadata = {"name": node.name, "labels": dict(node.labels), "managedFields": managed}
    return {"kind": "Node", "metadata": metadata}


def written(tmp_path: Path, found: Iterable[ClusterNode]) -> str:
    """Return the name of a file with these nodes."""
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"kind": "List", "items": list(map(item, found))}))
    return str(file)
