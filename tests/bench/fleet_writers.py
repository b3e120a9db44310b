"""What agents cost that ask on a timer, on the same server: one request a minute from each node.

``rewrite`` patches the Node with the labels that it has. ``reread`` reads it as it is now and finds
them, as GPU feature discovery does with its NodeFeature (k8s-device-plugin v0.19, cmd/
gpu-feature-discovery, sleep-interval 60 s; internal/lm/output.go, a Get without resourceVersion and
an Update on a difference). Connections are kept, as client-go keeps them: no request pays for one.
"""

from collections.abc import Callable, Mapping

from tests.bench.fleet_connection import Connection
from tests.bench.fleet_simulation import Fleet

INTERVAL_S = 60.0

Writer = Callable[[Connection, str, Mapping[str, str]], None]
"""Makes the one request of a node, which has these labels."""


def rewrite(connection: Connection, node: str, labels: Mapping[str, str]) -> None:
    """Write the labels that are there already."""
    answer = connection.merge(_path(node), {"metadata": {"labels": dict(labels)}})
    assert answer.status == 200, answer


def reread(connection: Connection, node: str, _labels: Mapping[str, str]) -> None:
    """Read the Node as it is now."""
    answer = connection.get(_path(node), {})
    assert answer.status == 200, answer


def run(fleet: Fleet, writer: Writer, minutes: int) -> None:
    """Have *writer* ask for each node of *fleet*, once in each of so many *minutes*."""
    for _ in range(minutes):
        for node in fleet.tokens:
            writer(fleet.kept(node), node, fleet.labels(node))
        fleet.now += INTERVAL_S


def _path(node: str) -> str:
    return f"/api/v1/nodes/{node}"
