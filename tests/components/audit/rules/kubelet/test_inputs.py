"""How rules on the kubelet name settings, and read what it reads."""

import pytest
from msgspec.structs import fields, replace

from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip
from nodetopo.components.audit.rules.kubelet.inputs import (
    ATTRIBUTES,
    amount,
    kubelet_rule,
    need,
    place,
    reserved,
    version,
)
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, SETTINGS, healthy

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


@kubelet_rule(
    "KUB-001",
    Severity.ERROR,
    policy=("cpuManagerPolicy", "static"),
    needs=("maxPods", need("CPUs", lambda snapshot: snapshot.cpu)),
    unless=(lambda snapshot: "a test" if snapshot.node == "skipped" else None,),
)
def guarded(_snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    yield Finding(subject=settings.source, observed="", expected="")


def test_a_guarded_rule_judges_settings_with_its_policy_alone() -> None:
    settings = KubeletSettings(source="a file", cpu_manager_policy="static", max_pods=8)
    judged = replace(healthy(), kubelet=settings, kubelet_on_disk=None)
    assert list(guarded.judge(judged)) == [Finding(subject="a file", observed="", expected="")]
    other = replace(judged, kubelet=replace(settings, cpu_manager_policy="none"))
    assert list(guarded.judge(other)) == [Skip("cpuManagerPolicy is none")]
    assert list(guarded.judge(replace(other, node="skipped"))) == [Skip("a test")]


def test_a_guarded_rule_names_the_fields_and_then_what_else_it_needs() -> None:
    bare = replace(
        healthy(), cpu=None, kubelet=KubeletSettings(source="a file"), kubelet_on_disk=None
    )
    assert list(guarded.judge(bare)) == [
        Missing("cpuManagerPolicy"),
        Missing("maxPods"),
        Missing("CPUs"),
    ]
