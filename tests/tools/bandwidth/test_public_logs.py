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
        ("superbench-nccl_allgather.log", "dgx-a100", PASS),
        ("superbench-nccl_allreduce.log", "dgx-a100", PASS),
        ("superbench-nccl_broadcast.log", "dgx-a100", PASS),
        ("superbench-nccl_reduce.log", "dgx-a100", PASS),
    ],
)
def test_a_sound_node_does_not_fail(field: Path, name: str, of: str, verdict: Verdict) -> None:
    node = machine(of)
    log = read((field / "nccl-check" / name).read_text("utf-8"))
    gpus = node.gpus if log.figures[0].lacks is None else ()
    (one,) = compare(log, node, gpus=gpus).figures
    assert one.verdict is verdict, one.reason


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        *((f"e-{kind}.txt", 1) for kind in ("ansi", "boxed", "crlf", "kubectl-ts", "mpirun-ts")),
        ("e-pdsh.txt", 1),
        ("e-quoted.md", 1),
        ("g-nvbw-kubectl-ts.txt", 15),
        ("g-perftest-pdsh.txt", 1),
        ("f-ssh-warning-plus-good.log", 1),
        *((f"{name}-0.txt", 1) for name in ("aws-batch", "aws-nccl", "deepops-slurmperf")),
        ("deepops-roce-1.txt", 1),
        ("nccl1453-tag-in-midline.txt", 1),
        ("nvbw24-derived-ce.txt", 16),
        ("nvbw24-h100-quoted-sm.txt", 0),
        ("nvbw50-a6000x6.txt", 15),
        *(
            (f"perftest-{name}.log", 1)
            for name in ("a30-sys", "h100-gdr-389", "host-396", "host-D")
        ),
        ("rtx6k-p2p-0.txt", 15),
        ("superbench-ib_loopback_8M_size.log", 2),
        ("superbench-ib_loopback_all_sizes.log", 1),
        ("tag-mpirun.log", 1),
        ("tag-srun.log", 1),
    ],
)
def test_a_log_has_its_figures_and_no_problem_whatever_it_is_wrapped_in(
    field: Path, name: str, figures: int
) -> None:
    log = read((field / "nccl-check" / name).read_text("utf-8"))
    assert (len(log.figures), log.problems) == (figures, ())


def test_a_log_whose_results_were_cut_out_is_no_failure(field: Path) -> None:
    log = read((field / "nccl-check/dranet-site-gke-1.txt").read_text("utf-8"))
    assert [(problem.is_error, problem.is_missing) for problem in log.problems] == [(False, True)]
    assert log.figures == ()


def test_the_first_tables_of_nccl_tests_and_their_wrong_values_are_read(field: Path) -> None:
    log = read((field / "nccl-check/legacy2018-nccltests7.txt").read_text("utf-8"))
    assert [figure.gb_per_s for figure in log.figures] == [20.66]
    assert [problem.text for problem in log.problems if problem.is_error] == [
        "248 values out of bounds: wrong data arrived"
    ]


def test_tests_by_kernels_are_named_and_not_compared(field: Path) -> None:
    log = read((field / "nccl-check/nvbw24-h100-quoted-sm.txt").read_text("utf-8"))
    assert log.others == ("host_to_device_memcpy_sm", "device_to_host_memcpy_sm")
