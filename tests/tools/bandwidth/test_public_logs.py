"""Logs of sound nodes that others published, or in their form: none fails."""

from pathlib import Path

import pytest

from nodetopo.checks.rule import Verdict
from nodetopo.machines.bundled import machine
from nodetopo.tools.bandwidth.compare import compare
from nodetopo.tools.bandwidth.read import read

PASS, UNKNOWN = Verdict.PASS, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("name", "of", "verdict"),
    [
        ("a100-all_gather-8G.log", "dgx-a100", PASS),
        ("a100-all_reduce-1G.log", "dgx-a100", UNKNOWN),
        ("b200-all_gather-8G.log", "hgx-b200", PASS),
        ("h100-all_gather-8G.log", "dgx-h100", PASS),
        ("h100-all_reduce-1G.log", "dgx-h100", UNKNOWN),
        ("h100-all_reduce-256M.log", "dgx-h100", UNKNOWN),
        ("h100-all_reduce-8G-476.log", "dgx-h100", PASS),
        ("h100-all_reduce-ring-16G.log", "dgx-h100", UNKNOWN),
        ("h100-alltoall-8G.log", "dgx-h100", PASS),
        ("h100-reduce_scatter-8G.log", "dgx-h100", PASS),
        ("h200-all_reduce-4G.log", "hgx-h200", PASS),
        ("nccl-k8s-h100-indented.md", "dgx-h100", UNKNOWN),
        ("coreweave-0.txt", "dgx-h100", UNKNOWN),
        ("coreweave-2.txt", "dgx-h100", UNKNOWN),
        ("s-b200-allgather-680.txt", "hgx-b200", PASS),
        ("s-h100-allgather-370.txt", "dgx-h100", PASS),
        ("s-h100-allreduce-470.txt", "dgx-h100", PASS),
        ("s-h100-allreduce-ring-370.txt", "dgx-h100", PASS),
        ("superbench-nccl_allgather.log", "dgx-a100", UNKNOWN),
        ("superbench-nccl_allreduce.log", "dgx-a100", PASS),
        ("superbench-nccl_broadcast.log", "dgx-a100", UNKNOWN),
        ("superbench-nccl_reduce.log", "dgx-a100", UNKNOWN),
    ],
)
def test_a_sound_node_does_not_fail(corpus: Path, name: str, of: str, verdict: Verdict) -> None:
    node = machine(of)
    log = read((corpus.parent / "field/nccl-check" / name).read_text("utf-8"))
    gpus = node.gpus if log.figures[0].lacks is None else ()
    (one,) = compare(log, node, gpus=gpus).figures
    assert one.verdict is verdict, one.reason
