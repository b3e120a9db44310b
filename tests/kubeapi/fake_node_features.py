"""NodeFeature objects of an API server, applied as a schema-less map of labels is."""

import dataclasses
from collections.abc import Mapping
from copy import deepcopy
from typing import Any


@dataclasses.dataclass
class FakeFeatures:
    """The objects by path, and who owns their labels.

    Attributes:
        owners: path → manager → labels it applied.
        writes: bodies of all that were applied, in order.
    """

    objects: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    owners: dict[str, dict[str, set[str]]] = dataclasses.field(default_factory=dict)
    writes: list[Mapping[str, Any]] = dataclasses.field(default_factory=list)
    version: int = 1

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """Return status and object."""
        if method == "PATCH":
            return self._apply(path, query["fieldManager"], body)
        if path not in self.objects:
            return 404, {"message": "nodefeatures not found"}
        return 200, self.objects.pop(path) if method == "DELETE" else self._read(path)

    def label(self, path: str, manager: str, **labels: str) -> None:
        """Have another program put *labels* into the object."""
        self.objects[path]["spec"]["labels"] |= labels
        self.owners[path][manager] = set(labels)

    def _apply(
        self, path: str, manager: str, body: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        self.writes.append(body)
        self.version += 1
        is_new = path not in self.objects
        before = {} if is_new else self.objects[path]["spec"]["labels"]
        owners = self.owners.setdefault(path, {})
        sent = body["spec"]["labels"]
        gone = owners.get(manager, set()) - sent.keys()
        owners[manager] = set(sent)
        labels = {key: value for key, value in before.items() if key not in gone}
        self.objects[path] = deepcopy(dict(body))
        self.objects[path]["spec"]["labels"] = labels | sent
        return 201 if is_new else 200, self._read(path)

    def _read(self, path: str) -> dict[str, Any]:
        found = deepcopy(self.objects[path])
        found["metadata"]["resourceVersion"] = str(self.version)
        found["metadata"]["managedFields"] = [
            {
                "manager": manager,
                "operation": "Apply",
                "fieldsV1": {"f:spec": {"f:labels": {f"f:{key}": {} for key in keys}}},
            }
            for manager, keys in self.owners[path].items()
        ]
        return found
