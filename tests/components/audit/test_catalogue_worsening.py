"""A node made worse never gains a pass, whatever happens to it and in whatever order."""

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Verdict
from nodetopo.components.audit.catalogue import RULES
from nodetopo.model.gpu import Gpu, RemappedRows
from nodetopo.model.nvlink import NvLink
from nodetopo.model.pci import PcieLink
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.budget import cases
from tests.components.audit.judge import healthy, with_gpu

Blow = Callable[[Snapshot, int], Snapshot]
FAILED = RemappedRows(correctable=0, uncorrectable=1, is_pending=False, has_failed=True)


def hurt(change: Callable[[Gpu], Gpu]) -> Blow:
    """Return the blow that does *change* to one GPU."""

    def blow(snapshot: Snapshot, which: int) -> Snapshot:
        return with_gpu(snapshot, which % len(snapshot.gpus), change)

    return blow


def set_link(snapshot: Snapshot, which: int, change: Callable[[NvLink], NvLink]) -> Snapshot:
    links = list(snapshot.nvlinks or ())
    if links:
        links[which % len(links)] = change(links[which % len(links)])
    return snapshot if snapshot.nvlinks is None else replace(snapshot, nvlinks=tuple(links))


def cut_link(snapshot: Snapshot, which: int) -> Snapshot:
    return set_link(
        snapshot, which, lambda link: replace(link, is_active=False, peer=None, peer_kind=None)
    )


def switch_off_link(snapshot: Snapshot, which: int) -> Snapshot:
    return set_link(snapshot, which, lambda link: replace(link, is_active=False))


def silence_link(snapshot: Snapshot, which: int) -> Snapshot:
    return set_link(snapshot, which, lambda link: replace(link, is_active=None))


def hang_nvml(snapshot: Snapshot, _which: int) -> Snapshot:
    return replace(snapshot, issues=(ProbeIssue(probe="nvml", subject="", reason="hangs"),))


def cut_all_links(snapshot: Snapshot, _which: int) -> Snapshot:
    for position in range(len(snapshot.nvlinks or ())):
        snapshot = cut_link(snapshot, position)
    return snapshot


def drop_port(snapshot: Snapshot, which: int) -> Snapshot:
    hcas = list(snapshot.hcas or ())
    if hcas:
        hca = hcas[which % len(hcas)]
        ports = tuple(replace(port, state="DOWN") for port in hca.ports)
        hcas[which % len(hcas)] = replace(hca, ports=ports)
    return snapshot if snapshot.hcas is None else replace(snapshot, hcas=tuple(hcas))


def misplace_hca(snapshot: Snapshot, which: int) -> Snapshot:
    hcas = list(snapshot.hcas or ())
    if hcas:
        hcas[which % len(hcas)] = replace(hcas[which % len(hcas)], numa_node=None)
    return snapshot if snapshot.hcas is None else replace(snapshot, hcas=tuple(hcas))


def unset_policies(snapshot: Snapshot, which: int) -> Snapshot:
    field, value = (
        ("cpu_manager_policy", "none"),
        ("memory_manager_policy", "None"),
        ("topology_manager_policy", "none"),
    )[which % 3]
    bad = snapshot.kubelet and replace(snapshot.kubelet, **{field: value})
    return replace(snapshot, kubelet=bad)


def shrink_request(snapshot: Snapshot, _which: int) -> Snapshot:
    pods = tuple(
        replace(
            pod,
            containers=tuple(
                replace(it, requests={**(it.requests or {}), "cpu": 1500}) for it in pod.containers
            ),
        )
        for pod in snapshot.pods or ()
    )
    return snapshot if snapshot.pods is None else replace(snapshot, pods=pods)


def forget(snapshot: Snapshot, which: int) -> Snapshot:
    parts = ("nvlinks", "numa_nodes", "hcas", "kubelet", "pods")
    return replace(snapshot, **{parts[which % len(parts)]: None})


BLOWS: tuple[Blow, ...] = (
    hurt(lambda gpu: replace(gpu, is_lost=True)),
    hurt(lambda gpu: replace(gpu, pcie=PcieLink(width=4, max_width=16))),
    hurt(lambda gpu: replace(gpu, pcie=None)),
    hurt(lambda gpu: replace(gpu, numa_node=None)),
    hurt(lambda gpu: replace(gpu, recovery_action=1)),
    hurt(lambda gpu: replace(gpu, recovery_action=None)),
    hurt(lambda gpu: replace(gpu, remapped_rows=FAILED)),
    cut_link,
    switch_off_link,
    silence_link,
    hang_nvml,
    cut_all_links,
    drop_port,
    misplace_hca,
    unset_policies,
    shrink_request,
    forget,
)


def passing(snapshot: Snapshot) -> tuple[frozenset[str], frozenset[str]]:
    """Return the rules that pass, and those that pass or do not apply."""
    fine = [it for it in evaluate(snapshot, RULES).results if it.verdict is Verdict.PASS]
    passed = frozenset(it.rule.code for it in fine if it.skipped is None)
    return passed, frozenset(it.rule.code for it in fine)


@cache
def passing_at_first(name: str) -> frozenset[str]:
    """Return the rules that pass or do not apply on the healthy machine *name*."""
    return passing(healthy(name))[1]


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "l40s-pcie-4"])
@given(blows=st.lists(st.tuples(st.sampled_from(BLOWS), st.integers(0, 200)), max_size=12))
@settings(deadline=None, max_examples=cases(15, 60))
def test_a_node_made_worse_never_gains_a_pass(name: str, blows: list[tuple[Blow, int]]) -> None:
    snapshot = healthy(name)
    fine = passing_at_first(name)
    for blow, which in blows:
        snapshot = blow(snapshot, which)
        before = fine
        passed, fine = passing(snapshot)
        assert passed <= before
