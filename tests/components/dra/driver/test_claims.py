"""What is read of a ResourceClaim."""

from typing import Any

import pytest

from nodetopo.components.dra.driver.claims import AllocatedDevice, ClaimReference, allocated
from nodetopo.errors import InputError

CLAIM = ClaimReference(uid="u1", namespace="ns", name="c")


def result(device: str, **more: Any) -> dict[str, Any]:
    base = {"request": "gpus", "driver": "nodetopo.io", "pool": "n", "device": device}
    return {**base, **more}


def claim(*results: dict[str, Any]) -> dict[str, Any]:
    allocation = {"devices": {"results": list(results)}}
    return {"metadata": {"uid": "u1"}, "status": {"allocation": allocation}}


def test_only_devices_of_our_driver_and_pool_count() -> None:
    body = claim(
        result("gpu-1b"),
        result("nic", driver="dra.net"),
        result("gpu-1b", pool="other"),
        result("gpu-43", request="gpus/any", adminAccess=True),
    )
    assert allocated(body, CLAIM, "n") == (
        AllocatedDevice(request="gpus", device="gpu-1b"),
        AllocatedDevice(request="gpus/any", device="gpu-43", is_admin=True),
    )


def test_a_claim_that_was_made_anew_is_another() -> None:
    body = {**claim(), "metadata": {"uid": "u2"}}
    with pytest.raises(InputError, match="made anew"):
        allocated(body, CLAIM, "n")


@pytest.mark.parametrize("status", [{}, {"allocation": None}])
def test_a_claim_without_an_allocation_is_an_error(status: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="nothing is allocated"):
        allocated({"metadata": {"uid": "u1"}, "status": status}, CLAIM, "n")
