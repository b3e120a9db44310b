"""What we make of a kubelet's files and flags, and what the kubelet itself makes of them."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.model.kubelet import KubeletMetrics, KubeletSettings
from nodetopo.model.kubelet_state import CpuState, KubeletState
from nodetopo.model.numa import CpuSet
from nodetopo.probes.kubelet.api import settings_from_configz
from nodetopo.probes.kubelet.metrics import metrics_from_text
from nodetopo.probes.kubelet.state import read_kubelet_state
from tests.budget import cases
from tests.lab.kubelet_configurations import configuration
from tests.lab.lone_kubelet import LoneKubelet
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

ENOUGH = cases(8, 25)
"""Configurations that a kubelet must have lived with; it refuses two of five drawn."""

HEADER = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
FILE = "--config=/var/lib/kubelet/config.yaml"
FOLDER = "--config-dir=/var/lib/kubelet/conf.d"
NOTHING = "--enforce-node-allocatable="


@pytest.fixture(scope="module")
def lone(namespaces: None) -> Iterator[LoneKubelet]:
    """Return a machine for one kubelet after another."""
    del namespaces
    machine = LoneKubelet()
    yield machine
    machine.close()


def plain(settings: KubeletSettings) -> KubeletSettings:
    """Return *settings* without what only one of both sources tells."""
    return replace(settings, source="", origins=None, root_directory=None, odd_keys=None)


def test_our_merge_is_the_kubelets_own_on_random_configurations(lone: LoneKubelet) -> None:
    agreed = 0
    for seed in range(ENOUGH * 4):
        drawn = configuration(seed)
        if lone.start(drawn.files, drawn.flags):
            theirs = settings_from_configz(lone.api.configz())
            assert plain(lone.our_view()) == plain(theirs), f"seed {seed}: {drawn}"
            agreed += 1
        if agreed == ENOUGH:
            return
    pytest.fail(f"only {agreed} kubelets lived")


def test_null_in_a_drop_in_leaves_a_kubelet_without_hard_eviction(lone: LoneKubelet) -> None:
    files = {"config.yaml": HEADER, "conf.d/a.conf": HEADER + "evictionHard: null\n"}
    assert lone.start(files, (FILE, FOLDER, NOTHING))
    theirs = settings_from_configz(lone.api.configz())
    assert (theirs.eviction_hard, lone.our_view().eviction_hard) == ({}, {})


def test_a_linked_directory_of_drop_ins_is_not_loaded(lone: LoneKubelet) -> None:
    files = {
        "config.yaml": HEADER,
        "real/a.conf": HEADER + "maxPods: 33\n",
        "conf.d": "-> real",
    }
    assert lone.start(files, (FILE, FOLDER, NOTHING))
    assert settings_from_configz(lone.api.configz()).max_pods == 110
    assert lone.our_view().max_pods == 110
    assert lone.start(files, (FILE, f"{FOLDER}/", NOTHING))
    assert settings_from_configz(lone.api.configz()).max_pods == 33
    assert lone.our_view().max_pods == 33


def test_an_empty_directory_of_drop_ins_takes_away_what_is_empty_in_the_file(
    lone: LoneKubelet,
) -> None:
    files = {"config.yaml": HEADER + "enforceNodeAllocatable: []\n", "conf.d/README": ""}
    assert lone.start(files, (FILE,))
    assert lone.our_view().enforce_node_allocatable == ()
    assert not lone.start(files, (FILE, FOLDER))
    assert 'must be set to true when \\"pods\\" contained in enforceNodeAllocatable' in lone.log()
    assert lone.our_view().enforce_node_allocatable == ("pods",)


def test_flags_alone_make_a_configuration_without_hard_eviction(lone: LoneKubelet) -> None:
    assert lone.start({}, ("--max-pods=20", "--fail-swap-on=false", NOTHING))
    theirs = settings_from_configz(lone.api.configz())
    assert plain(lone.our_view()) == plain(theirs)
    assert (theirs.eviction_hard, theirs.max_pods) == ({}, 20)


def test_the_managers_files_are_read_as_the_kubelet_writes_them(lone: LoneKubelet) -> None:
    text = HEADER + (
        "cpuManagerPolicy: static\n"
        "reservedSystemCPUs: '0,56'\n"
        "memoryManagerPolicy: Static\n"
        "systemReserved: {memory: 500Mi}\n"
        "reservedMemory: [{numaNode: 1, limits: {memory: 600Mi}}]\n"
    )
    assert lone.start({"config.yaml": text}, (FILE, NOTHING))
    state = wait_for(
        "its managers have written their files", lambda: _written(lone), evidence=lone.log
    )
    assert state.cpu == CpuState(policy="static", default=CpuSet.parse("0-223"), entries={})
    assert state.memory is not None
    assert state.memory.policy == "Static"
    assert [
        (block.numa_node, block.kind, block.system_reserved, block.cells)
        for block in state.memory.blocks
        if block.kind == "memory"
    ] == [(0, "memory", 0, (0,)), (1, "memory", 600 << 20, (1,))]


def test_the_kubelets_counters_are_read_before_anything_was_counted(lone: LoneKubelet) -> None:
    assert lone.start({"config.yaml": HEADER}, (FILE, NOTHING))
    nothing = KubeletMetrics(rejections={}, topology_errors=0, slow_allocations={})
    wait_for(
        "all counters are there, at nothing",
        lambda: _counted(lone) == nothing,
        evidence=lambda: str(_counted(lone)),
    )


def _written(lone: LoneKubelet) -> KubeletState | None:
    """Return what is in the files of the managers; ``None`` unless all of it is there."""
    state, issues = read_kubelet_state(lone.host, "/var/lib/kubelet")
    is_whole = state is not None and None not in (state.cpu, state.memory)
    return state if is_whole and not issues else None


def _counted(lone: LoneKubelet) -> KubeletMetrics:
    return metrics_from_text(lone.api.metrics())


def test_a_certificate_that_the_kubelet_made_itself_is_not_trusted(lone: LoneKubelet) -> None:
    assert lone.start({"config.yaml": HEADER}, (FILE, NOTHING))
    stranger = replace(lone.api, insecure=False)
    with pytest.raises(UnreadableError, match="certificate is not trusted"):
        stranger.configz()


def test_a_certificate_for_another_name_is_not_trusted(lone: LoneKubelet) -> None:
    assert lone.start({"config.yaml": HEADER}, (FILE, NOTHING))
    with pytest.raises(UnreadableError, match=r"certificate is not trusted: .*mismatch"):
        replace(lone.api, insecure=False, ca_file=lone.certificate).configz()
