"""How rules on the kubelet name settings, and read what it reads."""

from dataclasses import fields, replace

import pytest

from agent.checks.kubelet.inputs import ATTRIBUTES, amount, place, reserved, version
from agent.model.kubelet import KubeletSettings
from tests.checks.judge import NODE, SETTINGS, healthy

FILE = "/etc/kubelet.yaml"
OF_THE_SOURCE = {
    "source",
    "origins",
    "embedded_in",
    "changed_since_start",
    "unloaded_drop_ins",
    "odd_keys",
    "root_directory",
    "version",
}


def test_every_setting_has_its_field_of_the_configuration() -> None:
    assert set(ATTRIBUTES.values()) == {one.name for one in fields(KubeletSettings)} - OF_THE_SOURCE


@pytest.mark.parametrize(
    ("origins", "words"),
    [
        (None, "systemReserved in /var/lib/kubelet/config.yaml"),
        ({"systemReserved": FILE}, f"systemReserved in {FILE}"),
        ({"systemReserved.cpu": FILE}, f"systemReserved in {FILE}"),
        (
            {"systemReservedCgroup": FILE},
            "systemReserved, not stated in /var/lib/kubelet/config.yaml",
        ),
    ],
)
def test_a_setting_is_named_with_what_states_it(origins: dict[str, str] | None, words: str) -> None:
    assert place(replace(SETTINGS, origins=origins), "systemReserved") == words


def test_reservations_add_up_and_are_unknown_with_a_part() -> None:
    both = replace(SETTINGS, system_reserved={"cpu": "0.5"}, kube_reserved={"cpu": "250m"})
    assert reserved(both, "cpu", per_unit=1000) == 750
    assert reserved(both, "memory") == 0
    assert reserved(replace(both, kube_reserved=None), "cpu") is None
    assert reserved(replace(both, kube_reserved={"cpu": "some"}), "cpu") is None
    assert amount("some") is None


def test_the_version_is_that_of_the_kubelet_before_that_of_the_node() -> None:
    whole = healthy()
    assert version(whole) == NODE.kubelet_version
    running = replace(whole, kubelet=replace(SETTINGS, version="v1.35.0"))
    assert version(running) == "v1.35.0"
    assert version(replace(whole, node_status=None)) is None
