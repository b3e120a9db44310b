"""Labels that ask for a free driver."""

import pytest

from nodetopo.model.operator_labels import (
    DEVICE_PLUGIN,
    GPU_CLIENT,
    MIG_STATE,
    UPGRADE_STATE,
    driver_claim,
)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (DEVICE_PLUGIN, "paused-for-driver-upgrade"),
        (DEVICE_PLUGIN, "paused-for-mig-change"),
        (DEVICE_PLUGIN, "mine_paused-for-driver-upgrade"),
        (GPU_CLIENT, "paused-for-driver-upgrade"),
        (UPGRADE_STATE, "pod-deletion-required"),
        (UPGRADE_STATE, "drain-required"),
        (UPGRADE_STATE, "pod-restart-required"),
        (UPGRADE_STATE, "upgrade-failed"),
        (MIG_STATE, "pending"),
    ],
)
def test_a_label_that_asks_for_the_driver_is_named(key: str, value: str) -> None:
    assert driver_claim({"other": "x", key: value}) == f"{key}={value}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (DEVICE_PLUGIN, "true"),
        (DEVICE_PLUGIN, "false"),
        (UPGRADE_STATE, "upgrade-required"),
        (UPGRADE_STATE, "cordon-required"),
        (UPGRADE_STATE, "wait-for-jobs-required"),
        (UPGRADE_STATE, "validation-required"),
        (UPGRADE_STATE, "uncordon-required"),
        (UPGRADE_STATE, "upgrade-done"),
        (UPGRADE_STATE, ""),
        (MIG_STATE, "success"),
        (MIG_STATE, "failed"),
        (MIG_STATE, "rebooting"),
    ],
)
def test_other_states_do_not_ask(key: str, value: str) -> None:
    assert driver_claim({key: value}) is None
