"""A fleet of agents on one API server, by a clock that runs as fast as that server answers."""

import ssl
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from random import Random

from nodetopo.components.labels.catalogue import labels
from nodetopo.machines.bundled import machine
from tests.bench import fleet_node
from tests.bench.fleet_agent import FleetAgent
from tests.bench.fleet_connection import Asked, Connection
from tests.bench.fleet_identity import pod_token
from tests.bench.fleet_server import Server

VERSION = "nvidia.com/cuda.driver-version.full"
"""The label that a new version of the software, here of the driver, changes on every node."""

_DGX = machine("dgx-h100")
_LABELS = labels(_DGX)


class Fleet:
    """Nodes, the identities of their agents, and the agents that run at the moment.

    Attributes:
        now: the clock, seconds.
        agents: by node.
    """

    def __init__(self, server: Server, count: int, *, first: int = 0, seed: int = 7) -> None:
        """Create *count* Nodes, the number of the first in their names, and their agents' pods."""
        self.now = 0.0
        self.agents: dict[str, FleetAgent] = {}
        self._changed: Mapping[str, str] = {}
        self._server = server
        self._asked: Asked = Counter()
        self._chance = Random(seed)
        self._trust = ssl.create_default_context(cafile=server.api.authority)
        self._kept = self._connection(server.api.token)
        self.tokens = dict(_enrol(self._kept, range(first, first + count)))
        self._asked.clear()

    def kept(self, node: str) -> Connection:
        """Return one connection that stays open, which now speaks for the agent of *node*."""
        self._kept.speak_as(self.tokens[node])
        return self._kept

    def labels(self, node: str) -> Mapping[str, str]:
        """Return what the last agent of *node* wants there: its NVLink domain is its own."""
        domain = f"node-{node.rpartition('-')[2]:0>16}"
        mine = {"gpu.topology/nvlink-domain": domain, "gpu.topology/nvlink-partition": domain}
        return {**_LABELS, **mine, **self._changed}

    def start(self, **changed: str) -> None:
        """Start an agent on every node; labels are those of a DGX H100 but for the *changed*."""
        self.stop()
        self._changed = changed
        self.agents = {node: self._agent(node) for node in self.tokens}

    def stop(self) -> None:
        """End all agents; their Nodes stay as they are."""
        for agent in self.agents.values():
            agent.stop()
        self.agents = {}

    def lose_server(self) -> None:
        """End the API server, and have every agent see its connections go."""
        self._server.go_away()
        for agent in self.agents.values():
            agent.lose()

    def run(self, seconds: float) -> None:
        """Let the agents act for *seconds* of the play, each when it wants to."""
        end = self.now + seconds
        queue = [(agent.due, node) for node, agent in self.agents.items()]
        heapify(queue)
        while queue and queue[0][0] <= end:
            due, node = queue[0]
            self.now = max(self.now, due)
            self.agents[node].act()
            heapreplace(queue, (max(self.agents[node].due, self.now), node))
        self.now = end

    def counted(self) -> Mapping[tuple[str, int], int]:
        """Return the requests since the last call, by verb and second of the play."""
        counted = Counter(self._asked)
        self._asked.clear()
        return counted

    def _connection(self, token: str) -> Connection:
        return Connection(
            lambda: self._server.api.url,
            token,
            self._trust,
            clock=lambda: self.now,
            asked=self._asked,
        )

    def _agent(self, node: str) -> FleetAgent:
        return FleetAgent(
            node,
            _DGX,
            self.labels(node),
            connection=lambda: self._connection(self.tokens[node]),
            clock=lambda: self.now,
            chance=self._chance,
        )


def by_verb(counted: Mapping[tuple[str, int], int]) -> Counter[str]:
    """Return the requests by verb alone."""
    found: Counter[str] = Counter()
    for (verb, _), count in counted.items():
        found[verb] += count
    return found


def peaks(counted: Mapping[tuple[str, int], int]) -> Mapping[str, int]:
    """Return the most requests of each verb in one second."""
    found: dict[str, int] = {}
    for (verb, _), count in counted.items():
        found[verb] = max(count, found.get(verb, 0))
    return found


def _enrol(admin: Connection, numbers: Iterable[int]) -> Iterable[tuple[str, str]]:
    for number in numbers:
        name = f"gpu-{number:05}"
        admin.make("/api/v1/nodes", fleet_node.node(name))
        yield name, pod_token(admin.make, name)
