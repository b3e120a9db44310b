"""NVIDIA's device plugin and ours, given the same file, offer the same on the same machine."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import pytest
from msgspec import Struct

from nodetopo.deviceplugin.devices import PluginDevice
from tests.lab.nvidia.cases import CASES, Case
from tests.lab.nvidia.desk import Answer, Desk, Kubelet

pytestmark = pytest.mark.lab


class Seen(Struct, frozen=True, kw_only=True):
    """What one plugin did: its lists, and what it handed over for some devices of each."""

    resources: set[str]
    lists: Mapping[str, Sequence[PluginDevice]]
    answers: Mapping[tuple[str, ...], Answer | None]


class Compared(Struct, frozen=True, kw_only=True):
    """Both plugins under one configuration."""

    case: Case
    nvidia: Seen
    ours: Seen


@pytest.fixture(scope="module", params=CASES)
def compared(request: pytest.FixtureRequest, desk: Callable[[str], Desk]) -> Compared:
    """Return what both plugins did under each configuration in turn."""
    case = CASES[request.param]
    at = desk(case.machine)
    nvidia = _seen(at.with_nvidia(case.config, case.amounts), case)
    ours = _seen(at.with_ours(case.config, case.amounts), case)
    ours.resources.update(at.ours_offers())
    return Compared(case=case, nvidia=nvidia, ours=ours)


def test_both_offer_the_resources_that_the_file_asks_for(compared: Compared) -> None:
    assert compared.nvidia.resources == compared.ours.resources == set(compared.case.amounts)


def test_both_list_the_same_devices_near_the_same_numa_nodes(compared: Compared) -> None:
    assert compared.ours.lists == compared.nvidia.lists


def test_they_list_as_many_as_the_file_asks_for(compared: Compared) -> None:
    listed = {name: len(devices) for name, devices in compared.nvidia.lists.items()}
    assert listed == compared.case.amounts


def test_both_hand_over_the_same_or_refuse(compared: Compared) -> None:
    assert compared.ours.answers == compared.nvidia.answers


def _seen(running: AbstractContextManager[Kubelet], case: Case) -> Seen:
    with running as kubelet:
        lists = {name: kubelet.devices(name) or () for name in case.amounts}
        answers = {
            ids: kubelet.answer(name, ids)
            for name, devices in lists.items()
            for ids in _choices([device.id for device in devices])
        }
    return Seen(resources=kubelet.registered, lists=lists, answers=answers)


def _choices(ids: Sequence[str]) -> set[tuple[str, ...]]:
    """Return requests for one device, for neighbours (replicas of one GPU), and for strangers."""
    return {(ids[0],), tuple(ids[:2]), (ids[0], ids[-1])}
