"""ResourceSlices and ResourceClaims of the cluster, from the API server or from files."""

from argparse import Namespace
from collections.abc import Callable, Mapping

from agent.cli.cluster_source import found, not_usable, objects
from agent.cli.output import progress
from agent.cli.source import settings
from agent.errors import ApiUnavailable, DecodeError
from agent.formats.fields import Object, text
from agent.kubeapi.client import Api
from agent.model.dra import API, PublishedDevice
from agent.probes.dra import devices_of

CLAIMS = f"{API}/resourceclaims"

_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
"""Of the API, which write devices alike; ``kubectl`` prints the first from Kubernetes 1.34 on."""


def read_objects(name: str, kind: str) -> tuple[Object, ...]:
    """Return the objects of *kind* in the file *name*, as ``kubectl get … -o json`` prints them.

    Raises:
        InputError: the file cannot be used, or holds anything else.
    """
    items = []
    with progress(f"reading {name}"):
        for at, item in objects(name):
            if not isinstance(item, dict):
                raise not_usable(name, DecodeError(at, f"expected a {kind}, found {found(item)}"))
            if item.get("kind") != kind:
                problem = f"expected a {kind}, found the kind {item.get('kind')!r}"
                raise not_usable(name, DecodeError(at, problem))
            if (version := item.get("apiVersion", _VERSIONS[0])) not in _VERSIONS:
                cure = "save it from Kubernetes 1.34 or later"
                raise not_usable(name, DecodeError(at, f"of the API {version!r}", cure))
            items.append(item)
    return tuple(items)


def list_all(args: Namespace, path: str) -> tuple[Object, ...]:
    """Return the objects at *path*, which the API server lists.

    Raises:
        ApiUnavailable: they cannot be listed.
    """
    from agent.kubeapi.lists import NotServed, list_objects  # noqa: PLC0415 - structlog, 0.2 s

    what = path.rpartition("/")[2]
    try:
        with progress(f"listing the {what}"):
            return tuple(list_objects(connect(args), path))
    except NotServed as error:
        cure = "Kubernetes 1.34 or later serves them"
        raise ApiUnavailable(error.cause, cure) from None


def connect(args: Namespace) -> Callable[[], Api]:
    """Return what connects to the API server."""
    from agent.kubeapi.apply import connection  # noqa: PLC0415 - as above

    return connection(settings(args).kubeconfig)


def published_by_node(slices: tuple[Object, ...]) -> Mapping[str, tuple[PublishedDevice, ...]]:
    """Return the devices of each node, without those of pools that belong to no single node."""
    by_node: dict[str, list[Object]] = {}
    for each in slices:
        node = text(each, "spec", "nodeName")
        if node is not None:
            by_node.setdefault(node, []).append(each)
    return {node: devices_of(own) for node, own in sorted(by_node.items())}
