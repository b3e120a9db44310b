"""Deadlines for tests: a node needs the real ones, and a busy machine misses them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodetopo.deviceplugin import settings
from nodetopo.deviceplugin.settings import Deadlines

PATIENCE_S = 60.0
"""Seconds; no test waits this long unless it fails."""

GENEROUS = Deadlines(
    choice_s=PATIENCE_S,
    register_s=PATIENCE_S,
    first_stream_s=2 * PATIENCE_S,
    competitor_answer_s=PATIENCE_S,
    stop_grace_s=PATIENCE_S,
    log_close_s=PATIENCE_S,
    fake_kubelet_dial_s=PATIENCE_S,
    fake_kubelet_call_s=PATIENCE_S,
    fake_kubelet_stop_s=PATIENCE_S,
)
"""For plugins and fake kubelets whose threads may be scheduled late.

With the real deadlines a late answer is another answer, a stop cuts off what it should have sent,
and a line of the log is left out.
"""


@contextmanager
def generous_deadlines() -> Iterator[None]:
    """Make them the default, for tests in which the daemon makes plugins and kubelets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "DEADLINES", GENEROUS)
        patch.setattr("nodetopo.kernel.requester.WINDOW_S", PATIENCE_S)
        yield


@pytest.fixture(scope="module", autouse=True)
def use_generous_deadlines() -> Iterator[None]:
    """Make them the default for a module that imports this."""
    with generous_deadlines():
        yield
