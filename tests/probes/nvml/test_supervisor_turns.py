"""Threads that ask for a scan at once."""

import threading

import pytest

from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import PATIENCE_S, Supervise


class _Turns:
    """A lock that tells how often it was asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self._lock = threading.Lock()
        self.release = self._lock.release

    def acquire(self, timeout: float) -> bool:
        self.asked += 1
        return self._lock.acquire(timeout=timeout)


def test_a_thread_that_waits_for_anothers_scan_shares_its_outcome(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml_fake.fail()
    supervisor, began = nvml_supervise(), threading.Event()
    turns, attempt = _Turns(), supervisor._attempt

    def held(request: str) -> object:
        began.set()
        assert eventually(lambda: turns.asked == 2)
        return attempt(request)

    monkeypatch.setattr(supervisor, "_lock", turns)
    monkeypatch.setattr(supervisor, "_attempt", held)
    first: list[object] = []
    thread = threading.Thread(target=lambda: first.append(supervisor.scan()))
    thread.start()
    assert began.wait(PATIENCE_S)
    second = supervisor.scan()
    thread.join(PATIENCE_S)
    assert first[0] is second
