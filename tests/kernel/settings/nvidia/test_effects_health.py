"""NVIDIA's variables about health checks, as its device plugin reads them.

Compared with ``internal/rm/health.go`` of k8s-device-plugin v0.19.0.
"""

import pytest

from nodetopo.kernel.settings.nvidia.effects import MILD
from nodetopo.kernel.settings.policies import LAST_XID
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.xid import xid
from tests.kernel.settings.resolving import resolve

OFF, ON = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
APP, RESET = HealthClass.APP, HealthClass.RESET


@pytest.mark.parametrize("text", ["all", "xids", "ALL", " all ,13", "13,xids"])
def test_all_is_no_health_check(text: str) -> None:
    found = resolve(environment={OFF: text})
    assert not found.settings.health_checks
    assert found.origins["health_checks"] == f"environment {OFF}"
    assert not found.settings.xid_classes


@pytest.mark.parametrize(
    ("off", "on", "expected"),
    [
        ("79", "", {79: APP}),
        ("79, 48", "", {48: APP, 79: APP}),
        ("", "13", {13: RESET}),
        ("79,13", "13", {13: RESET, 79: APP}),
        ("", "", {}),
    ],
)
def test_an_xid_that_is_enabled_makes_a_gpu_unhealthy_and_one_disabled_does_not(
    off: str, on: str, expected: dict[int, HealthClass]
) -> None:
    found = resolve(environment={OFF: off, ON: on}).settings
    assert dict(found.xid_classes) == expected
    assert found.health_checks


def test_some_are_enabled_out_of_all_that_are_disabled() -> None:
    found = resolve(environment={OFF: "all", ON: "79"}).settings
    assert found.health_checks
    assert str(found.xid_classes) == f"1-78=app,79={xid(79).kind},80-{LAST_XID}=app"


def test_all_enabled_wins_over_any_that_is_disabled() -> None:
    found = resolve(environment={OFF: "13", ON: "all"}).settings
    assert list(found.xid_classes) == list(range(1, LAST_XID + 1))
    assert not [code for code, kind in found.xid_classes.items() if kind in MILD]


def test_an_xid_that_is_enabled_keeps_a_class_that_asks_for_more_than_a_reset() -> None:
    classes = resolve(environment={ON: "all"}).settings.xid_classes
    for code, kind in classes.items():
        usual = xid(code).kind
        assert kind == (RESET if usual in MILD else usual), code


def test_what_is_no_xid_is_ignored_as_by_nvidias_and_that_is_said() -> None:
    found = resolve(environment={OFF: "79,ecc,99999,0"})
    assert dict(found.settings.xid_classes) == {79: APP}
    assert found.warnings[0] == (
        f"environment {OFF}: 'ecc', '99999', '0' is no XID, and is ignored"
    )


def test_our_classes_in_the_same_place_win() -> None:
    found = resolve(environment={OFF: "79", "NODETOPO_XID_CLASSES": "79=reboot"})
    assert dict(found.settings.xid_classes) == {79: HealthClass.REBOOT}
    assert any("wins over environment DP_DISABLE" in line for line in found.warnings)
