"""What does not serve GPUs begins after the registration, or when that would take too long."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.config.settings import Settings
from agent.daemon.app import MOST_S, QUIET_S, STEP_S, Daemon, wait_served
from agent.daemon.check_terms import TermsFile
from agent.daemon.components import Parts
from agent.daemon.target import Machine, Scene
from agent.model.nvml_event import NvmlStatus
from agent.store import SnapshotStore
from tests.daemon.plugin_sets import Played, playing
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU = "nvidia.com/gpu"


class Stopping(threading.Event):
    """Notes the waits, and takes none; it is set during the wait of the number *at*."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self._at = at

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once."""
        self.waits.append(timeout)
        if len(self.waits) == self._at:
            self.set()
        return self.is_set()


def test_it_begins_some_time_after_the_registration() -> None:
    stopping, answers = Stopping(), [False, False, True]
    assert not wait_served(stopping, lambda: answers.pop(0))
    assert stopping.waits == [STEP_S, STEP_S, QUIET_S]


def test_it_does_not_wait_for_ever() -> None:
    stopping = Stopping()
    assert not wait_served(stopping, lambda: False)
    *steps, last = stopping.waits
    assert (sum(filter(None, steps)), last) == (MOST_S, QUIET_S)


@pytest.mark.parametrize(("at", "is_served"), [(1, False), (1, True), (5, False)])
def test_a_stop_ends_the_wait_and_nothing_begins(at: int, is_served: bool) -> None:
    stopping = Stopping(at)
    assert wait_served(stopping, lambda: is_served)
    assert stopping.waits[:at] == [QUIET_S if is_served else STEP_S] * at


@pytest.fixture
def played() -> Iterator[Played]:
    with playing() as found:
        yield found


def test_a_node_is_served_once_the_kubelet_has_its_devices(played: Played) -> None:
    assert not played.offering.is_registered
    played.offering.take(WHOLE)
    assert eventually(lambda: played.offering.is_registered)
    assert played.listed(GPU) == {GPU: 8}


def test_a_node_with_nothing_to_register_is_served(played: Played) -> None:
    played.offering.take(replace(WHOLE, gpus=()))
    assert played.offering.is_registered


def test_the_daemon_waits_for_its_own_kubelet(played: Played) -> None:
    machine = Machine(read=lambda: WHOLE, reread=lambda: None, nvml=NvmlStatus)
    parts = Parts(
        settings=Settings(node_name="n"),
        scene=Scene(machine=machine, simulated=None, socket_dir=played.directory),
        store=SnapshotStore(),
        offering=played.offering,
        terms=TermsFile(None),
    )
    daemon, early, late = Daemon(parts, threading.Event()), Stopping(at=2), Stopping(at=1)
    daemon._attend(early)
    assert (early.waits[:2], parts.attending) == ([STEP_S] * 2, None)
    played.offering.take(WHOLE)
    assert eventually(lambda: played.offering.is_registered)
    daemon._attend(late)
    assert (late.waits, parts.attending) == ([QUIET_S], None)
