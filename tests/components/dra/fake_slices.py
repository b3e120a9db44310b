"""An API server as our DRA driver sees it: slices, its version, and feature gates that are off."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

from nodetopo.kubeapi.client import Answer
from nodetopo.kubeapi.slices import SliceWatch
from nodetopo.model.dra import DRIVER, SLICES

Object = dict[str, Any]


class FakeSliceApi:
    """Stores slices without the fields of *off*, and shows them to *watch*.

    Attributes:
        off: fields to drop, ``lists`` among them.
        extra: fields that this server adds to each specification.
        writes: names of slices that were applied, in order; without dry runs.
        tries: the same of dry runs.
        version: what ``/version`` answers; ``None`` for a refusal.
        refusal: the status with which every apply is answered instead.
    """

    host = "https://lab"

    def __init__(self, watch: SliceWatch, *, off: Collection[str] = ()) -> None:
        self.off = set(off)
        self.extra: Object = {}
        self.slices: dict[str, Object] = {}
        self.writes: list[str] = []
        self.tries: list[str] = []
        self.deleted: list[str] = []
        self.version: str | None = "v1.36.3"
        self.versions_asked = 0
        self.version_of_all = 0
        self.refusal: int | None = None
        self._watch = watch

    def show(self) -> None:
        """Let the watch see what is stored."""
        self._watch._publish(deepcopy(self.slices))

    def get(self, path: str, query: Mapping[str, str], max_bytes: int = 0) -> Answer:
        """Answer for the version."""
        del query, max_bytes
        assert path == "/version"
        self.versions_asked += 1
        if self.version is None:
            return Answer(status=403, body={"message": "no"}, retry_after_s=None)
        major, minor, _ = self.version.removeprefix("v").split(".")
        body = {"major": major, "minor": f"{minor}+", "gitVersion": self.version}
        return Answer(status=200, body=body, retry_after_s=None)

    def get_metadata(self, path: str, query: Mapping[str, str]) -> Answer:
        """Answer for the Node."""
        del path, query
        body = {"metadata": {"uid": "uid-1"}}
        return Answer(status=200, body=body, retry_after_s=None)

    def apply(
        self, path: str, query: Mapping[str, str], body: Object, *, is_whole: bool = False
    ) -> Answer:
        """Store a slice as a server with gates would."""
        assert is_whole, "without its specification nothing can be compared"
        if self.refusal is not None:
            return Answer(status=self.refusal, body={"message": "no"}, retry_after_s=None)
        name = path.removeprefix(f"{SLICES}/")
        self.version_of_all += 1
        stored = deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(self.version_of_all)
        spec = stored["spec"]
        spec.update(self.extra)
        if "sharedCounters" in self.off:
            spec.pop("sharedCounters", None)
        for device in spec.get("devices", ()):
            for field in self.off:
                device.pop(field, None)
            values = [value for it in device["attributes"].values() for value in it.values()]
            if "lists" in self.off and any(isinstance(value, list) for value in values):
                problem = {"message": "exactly one value must be specified"}
                return Answer(status=422, body=problem, retry_after_s=None)
        if "dryRun" in query:
            self.tries.append(name)
        else:
            self.writes.append(name)
            self.slices[name] = stored
        return Answer(status=200, body=stored, retry_after_s=None)

    def delete(self, path: str) -> Answer:
        """Delete a slice."""
        name = path.removeprefix(f"{SLICES}/")
        self.deleted.append(name)
        found = self.slices.pop(name, None)
        return Answer(status=404 if found is None else 200, body={}, retry_after_s=None)

    @property
    def devices(self) -> dict[str, Object]:
        """The devices that our driver publishes, by name; without those for administration."""
        return {
            it["name"]: it
            for each in self.slices.values()
            if each["spec"]["driver"] == DRIVER
            for it in each["spec"].get("devices", ())
            if it["attributes"]["type"] != {"string": "admin"}
        }

    @property
    def types(self) -> set[str]:
        """Their types."""
        return {it["attributes"]["type"]["string"] for it in self.devices.values()}
