"""Limits in time that a node needs and a busy machine breaks, lifted for a test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.deviceplugin import (
    allocation_log,
    conflict,
    fake_kubelet,
    registration,
    service,
)
from agent.deviceplugin import (
    fake_kubelet as stand_in_endpoint,
)
from agent.deviceplugin import (
    registration as way,
)

PATIENCE_S = 60.0
"""Costs nothing when things go well; none of it is what a test proves."""


@pytest.fixture(scope="module", autouse=True)
def lift_limits() -> Iterator[None]:
    """Do that for a module that imports this."""
    with unhurried():
        yield


@contextmanager
def unhurried() -> Iterator[None]:
    """Let plugins and stand-in kubelets that begin now wait for a thread that comes late.

    Otherwise an answer that was late is another answer, a stop cuts off what it should have
    sent, and a line of the log is left out.
    """
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(service, "CHOICE_LIMIT_S", PATIENCE_S)
        limits.setattr(allocation_log, "CLOSE_S", PATIENCE_S)
        limits.setattr(way, "STOP_GRACE_S", PATIENCE_S)
        limits.setattr(way, "STREAM_DUE_S", 2 * PATIENCE_S)
        limits.setattr(conflict, "ASK_TIMEOUT_S", PATIENCE_S)
        limits.setattr(registration, "DEADLINE_S", PATIENCE_S)
        limits.setattr(fake_kubelet, "STOP_TIMEOUT_S", PATIENCE_S)
        limits.setattr(stand_in_endpoint, "CALL_TIMEOUT_S", PATIENCE_S)
        limits.setattr(stand_in_endpoint, "DIAL_TIMEOUT_S", PATIENCE_S)
        yield
