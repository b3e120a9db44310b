import re

import pytest

from nodetopo.deviceplugin.cdi import (
    OWN_KIND,
    annotation_key,
    checked_annotation_prefix,
    checked_kind,
    is_device,
    sibling_kind,
    written_kind,
)
from nodetopo.errors import InputError
from nodetopo.model.cdi import device_name


def test_a_device_is_named_by_vendor_class_and_uuid() -> None:
    assert device_name("nvidia.com/gpu", "GPU-1") == "nvidia.com/gpu=GPU-1"


def test_what_goes_with_gpus_is_of_the_same_vendor() -> None:
    assert sibling_kind("nvidia.com/gpu", "imex-channel") == "nvidia.com/imex-channel"


@pytest.mark.parametrize(
    "kind", ["nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu", "a.b/c.d-e_f"]
)
def test_a_kind_is_vendor_and_class(kind: str) -> None:
    assert checked_kind(kind) == kind


@pytest.mark.parametrize(
    "kind",
    [
        *("", "gpu", "nvidia.com/", "/gpu", "a/b/c", "nvidia.com/gpu=1", "a/b.", "a/b\n", "1/b"),
        f"a/{'b' * 64}",
        f"{'a' * 254}/b",
    ],
)
def test_anything_else_is_no_kind(kind: str) -> None:
    with pytest.raises(InputError, match="not a CDI kind"):
        checked_kind(kind)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("GPU-00000d16-0000-4000-8000-000000000001", True),
        ("0", True),
        ("MIG-GPU-1/2/0", False),  # as drivers before R470 named MIG devices
        ("", False),
        ("-a", False),
    ],
)
def test_a_device_has_no_slash_in_its_name(name: str, *, is_one: bool) -> None:
    assert is_device(name) is is_one


def test_a_written_kind_is_ours_unless_another_was_asked_for() -> None:
    assert written_kind("nvidia.com/gpu") == OWN_KIND  # the default of the setting
    assert written_kind("example.com/gpu") == "example.com/gpu"


@pytest.mark.parametrize("kind", ["nvidia.com/mig", "k8s.device-plugin.nvidia.com/gpu"])
def test_a_kind_that_nvidia_writes_is_not_written(kind: str) -> None:
    with pytest.raises(InputError, match="NVIDIA's own specifications"):
        written_kind(kind)


def test_an_annotation_has_the_key_that_nvidias_plugin_would_give_it() -> None:
    key = annotation_key("cdi.k8s.io/", ("a/b=1", "a/b=2"))
    assert re.fullmatch("cdi.k8s.io/nvidia-device-plugin_[0-9a-f]{32}", key)
    assert key == annotation_key("cdi.k8s.io/", ("a/b=1", "a/b=2"))
    assert key != annotation_key("cdi.k8s.io/", ("a/b=1", "a/b=3"))


@pytest.mark.parametrize("prefix", ["cdi.k8s.io/", "Example.com/x-", "", "x-"])
def test_a_prefix_makes_keys_of_annotations(prefix: str) -> None:
    assert checked_annotation_prefix(prefix) == prefix


@pytest.mark.parametrize(
    "prefix",
    ["/", "a/b/", "-a.com/", "cdi_k8s/", "a.com/-", "a.com/.", "ü.com/", "a.com/" + 11 * "b"],
)
def test_another_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(InputError, match="no annotation can begin"):
        checked_annotation_prefix(prefix)
