"""The metrics of HCAs."""

from nodetopo.components.rdma.health.probe import COUNTERS
from nodetopo.components.rdma.metrics import PORT_ERRORS


def test_as_many_errors_of_a_port_are_published_as_are_read() -> None:
    assert len(COUNTERS) == PORT_ERRORS
