"""An API server with ResourceSlices and ResourceClaims, and files of them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kubeapi.fake_api_server import FakeApi, Reply


@dataclasses.dataclass
class DraApi(FakeApi):
    """Beside its Node it has *lists*: the objects by path."""

    lists: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)

    def _routed(
        self, method: str, path: str, query: dict[str, str], body: Mapping[str, Any]
    ) -> Reply:
        if path in self.lists:
            return 200, {"metadata": {}, "items": self.lists[path]}
        return super()._routed(method, path, query, body)


def write_list(path: Path, items: Sequence[Mapping[str, Any]]) -> str:
    """Write *items* as ``kubectl get -o json`` does, and return the file's name."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return str(path)
