import pytest

from agent.errors import InputError
from agent.kubelet.cdi import checked_kind, device_name


def test_a_device_is_named_by_vendor_class_and_uuid() -> None:
    assert device_name("nvidia.com/gpu", "GPU-1") == "nvidia.com/gpu=GPU-1"


@pytest.mark.parametrize("kind", ["nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu"])
def test_a_kind_is_vendor_and_class(kind: str) -> None:
    assert checked_kind(kind) == kind


@pytest.mark.parametrize("kind", ["", "gpu", "nvidia.com/", "/gpu", "a/b/c", "nvidia.com/gpu=1"])
def test_anything_else_is_no_kind(kind: str) -> None:
    with pytest.raises(InputError, match="not a CDI kind"):
        checked_kind(kind)
