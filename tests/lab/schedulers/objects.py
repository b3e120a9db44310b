"""Any object at its place in the API, which the server itself is asked for."""

from urllib.parse import quote

from tests.lab.api import Api, Object

_NAMESPACE = "default"


def place(api: Api, document: Object) -> str:
    """Return the path of *document*; one without a namespace is in ``default``.

    Raises:
        AssertionError: the server serves no such kind.
    """
    group = document["apiVersion"]
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    kinds = (api.find(base) or {"resources": ()})["resources"]
    found = [one for one in kinds if one["kind"] == document["kind"] and "/" not in one["name"]]
    assert found, f"the API server serves no {document['kind']} of {group}"
    metadata = document["metadata"]
    inside = (
        f"/namespaces/{metadata.get('namespace', _NAMESPACE)}" if found[0]["namespaced"] else ""
    )
    return f"{base}{inside}/{found[0]['name']}/{quote(metadata['name'], safe='')}"


def apply(api: Api, document: Object, *, is_dry_run: bool = False) -> Object:
    """Apply *document*, unknown fields refused, and return what the server made of it."""
    return api.apply(place(api, document), document, is_dry_run=is_dry_run)
