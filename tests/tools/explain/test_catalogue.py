"""Every word that the program reports is explained, by the spellings in which people meet it."""

import re
from collections import Counter

import pytest

from nodetopo.admission.errors import (
    SMT_ALIGNMENT_ERROR,
    TOPOLOGY_AFFINITY_ERROR,
    UNEXPECTED,
)
from nodetopo.components.audit.alignment.verdict import KNOWN
from nodetopo.components.dra.devices import FOREIGN, HELD, UNHEALTHY
from nodetopo.components.rdma.health.hca import FIRMWARE, LINK_DOWN, Presence
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.model.xid import TABLE
from nodetopo.tools.explain.catalogue import close_to, entries, look_up, names, plain
from nodetopo.tools.explain.entry import Entry, Kind
from tests.docs.test_operations import reasons_in


def found(word: str) -> list[tuple[Kind, str]]:
    return [(entry.kind, entry.name) for entry in look_up(word)]


def of(kind: Kind) -> set[str]:
    return {entry.name for entry in entries() if entry.kind is kind}


@pytest.mark.parametrize(
    ("word", "meanings"),
    [
        ("KUB-003", [(Kind.CHECK, "KUB-003")]),
        ("kub-003", [(Kind.CHECK, "KUB-003")]),
        ("79", [(Kind.XID, "XID-79")]),
        ("XID-79", [(Kind.XID, "XID-79")]),
        ("xid 79", [(Kind.XID, "XID-79")]),
        ("NVRM: Xid (PCI:0000:4f:00): 79, pid=12, GPU has fallen", [(Kind.XID, "XID-79")]),
        ("Xid79", [(Kind.XID, "XID-79"), (Kind.GPU_HEALTH, "Xid<code>")]),
        ("200", [(Kind.XID, "XID-200")]),
        ("GpuUnhealthy", [(Kind.ALERT, "GpuUnhealthy"), (Kind.EVENT, "GpuUnhealthy")]),
        ("GpuMissing", [(Kind.ALERT, "GpuMissing"), (Kind.GPU_HEALTH, "GpuMissing")]),
        ("DriverPaused", [(Kind.EVENT, "DriverPaused"), (Kind.READINESS, "DriverPaused")]),
        ("NotRegistered: the kubelet does not have a/b", [(Kind.READINESS, "NotRegistered")]),
        ("TopologyAffinityError", [(Kind.REJECTION, "TopologyAffinityError")]),
        ("UnexpectedAdmissionError", [(Kind.REJECTION, "UnexpectedAdmissionError")]),
        ("SMTAlignmentError", [(Kind.REJECTION, "SMTAlignmentError")]),
        ("OutOfcpu", [(Kind.REJECTION, "OutOfcpu")]),
        ("OutOfnvidia.com/gpu", [(Kind.REJECTION, "OutOf<resource>")]),
        ("OutOfrdma/hca_a", [(Kind.REJECTION, "OutOf<resource>")]),
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            [(Kind.MESSAGE, "Insufficient <resource>")],
        ),
        (
            "failed to inject devices: unresolvable CDI devices nvidia.com/gpu=0",
            [(Kind.MESSAGE, "unresolvable CDI devices")],
        ),
        (
            "nvidia-container-cli: device error: GPU-1: unknown device: unknown",
            [(Kind.MESSAGE, "unknown device")],
        ),
        ("gpu.topology/shape", [(Kind.LABEL, "gpu.topology/shape")]),
        ("nvidia.com/mig-1g.10gb.count", [(Kind.LABEL, "nvidia.com/mig-<profile>.count")]),
        ("mig-strategy", [(Kind.SETTING, "mig-strategy")]),
        ("--mig-strategy", [(Kind.SETTING, "mig-strategy")]),
        ("NODETOPO_MIG_STRATEGY", [(Kind.SETTING, "mig-strategy")]),
        ("nodetopo_gpu_healthy", [(Kind.METRIC, "nodetopo_gpu_healthy")]),
        ('nodetopo_gpu_healthy{gpu="3"} 0.0', [(Kind.METRIC, "nodetopo_gpu_healthy")]),
        ("nodetopo_xid_events", [(Kind.METRIC, "nodetopo_xid_events_total")]),
        ("nodetopo.io/held", [(Kind.TAINT, "nodetopo.io/held")]),
        ("packed", [(Kind.ALIGNMENT, "packed")]),
        ("fragmented", [(Kind.ALIGNMENT, "fragmented")]),
        ("RowRemapFailed", [(Kind.GPU_HEALTH, "RowRemapFailed")]),
        ("ResetRequired", [(Kind.GPU_HEALTH, "ResetRequired")]),
        ("HcaLinkDown", [(Kind.HCA_HEALTH, "HcaLinkDown")]),
        ("cdi-cri", [(Kind.HAND_OVER, "cdi-cri")]),
    ],
)
def test_a_word_has_all_its_meanings(word: str, meanings: list[tuple[Kind, str]]) -> None:
    assert found(word) == meanings


@pytest.mark.parametrize(
    "word", ["", " ", "--", "foo", "1000000", "0", "the", "a pod of mine is slow", "*", "(", "<x>"]
)
def test_a_word_of_no_table_has_no_meaning(word: str) -> None:
    assert found(word) == []


def test_names_in_the_table_of_a_word_are_found_by_themselves() -> None:
    for entry in entries():
        if "<" not in entry.name:
            assert entry in look_up(entry.name), entry.name


def test_names_of_a_kind_differ() -> None:
    counts = Counter((entry.kind, entry.name) for entry in entries())
    assert [name for name, count in counts.items() if count > 1] == []


def test_only_close_words_are_suggested() -> None:
    assert close_to("TopologyAffinityEror") == ("TopologyAffinityError",)
    assert close_to("KUB-03") == ("KUB-003",)
    assert close_to("gpuunhealty")[0] == "GpuUnhealthy"
    assert close_to("a pod of mine is slow") == ()


def test_words_for_completion_are_single_words_without_variable_parts() -> None:
    assert {"KUB-003", "XID-79", "TopologyAffinityError", "mig-strategy"} <= set(names())
    assert [name for name in names() if re.search(r"[<>\s]", name)] == []


# The tables have what the program has.


def test_every_xid_of_the_table_is_explained() -> None:
    assert of(Kind.XID) == {f"XID-{code}" for code in TABLE}


def test_every_cause_of_misalignment_is_explained() -> None:
    words = {cause.code for cause in KNOWN if not re.fullmatch(r"[A-Z]{3}-\d+", cause.code)}
    assert of(Kind.ALIGNMENT) == words | {"aligned", "misaligned"}


def test_every_rejection_that_admission_predicts_is_explained() -> None:
    predicted = {TOPOLOGY_AFFINITY_ERROR, UNEXPECTED, SMT_ALIGNMENT_ERROR}
    assert predicted <= of(Kind.REJECTION)


def test_every_taint_and_every_hand_over_is_explained() -> None:
    assert of(Kind.TAINT) == {UNHEALTHY, HELD, FOREIGN}
    assert of(Kind.HAND_OVER) == {strategy.value for strategy in Strategy}


def test_every_reason_of_a_verdict_on_a_gpu_is_explained() -> None:
    health = "agent/nodetopo/components/gpus/health/"
    files = ("seen.py", "reported.py", "ledger.py", "saved.py", "recovery.py")
    spoken = {reason for file in files for reason in reasons_in(health + file)}
    assert spoken - {"HealthRules", "HealthState"} <= of(Kind.GPU_HEALTH)
    assert len(spoken) > 15


def test_every_reason_of_a_verdict_on_an_hca_is_explained() -> None:
    gone = {presence.value for presence in Presence} - {None, Presence.UNKNOWN.value}
    assert of(Kind.HCA_HEALTH) == gone | {LINK_DOWN, FIRMWARE}


def test_pages_of_entries_exist_with_their_section() -> None:
    from tests.docs.test_links import ROOT, anchors  # noqa: PLC0415 - reads every page

    for entry in entries():
        path, _, anchor = entry.page.partition("#")
        assert not path or not anchor or anchor in anchors(ROOT / path), entry.page


def test_texts_are_plain() -> None:
    def texts(entry: Entry) -> list[str]:
        return [entry.meaning, *(text for _, text in entry.facts)]

    assert [text for entry in entries() for text in texts(entry) if "](" in text] == []
    assert plain("see [a page](b.md#c), `agent health`") == "see a page, `nodetopo health`"
