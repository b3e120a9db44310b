"""``python -m tests.bench.traces`` from the outside."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from jsonschema import Draft202012Validator

from nodetopo.model.codec import encode
from tests.bench.traces.__main__ import _source
from tests.bench.traces.contest import POLICIES
from tests.cli.conftest import Cli
from tests.strategies import node

SCHEMA = Path(__file__).with_name("trace.json")
FAST = ("--machine", "dgx-1v", "--jobs", "80", "--seeds", "2")
OF_BEST = (
    "mean_of_best",
    "harmonic_of_best",
    "offline_of_best",
    "reached",
    "fragmentation",
    "against_first",
)
_DRAWN = Random(0)
MESH = node(
    numa=(0,) * 6 + (1,) * 5,
    links={
        pair: _DRAWN.randint(1, 6) for pair in combinations(range(11), 2) if _DRAWN.random() < 1 / 2
    },
)
"""A mesh too large to look at every set: of 4 GPUs some set has more than what is found first."""
RIVALS = ["nvidia", "nvidia-sorted", "hami", "first-fit", "kubelet", "random"]


def _policies(text: str) -> list[str]:
    return [row["policy"] for row in json.loads(text)["policies"]]


def _validate(text: str) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(text))


def test_the_table_has_a_line_for_each_policy(cli: Cli) -> None:
    outcome = cli(*FAST, "--policy", "best,first-fit")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "dgx-1v: 8 GPUs, bandwidth by the ring model"
    assert lines[1] == "philly: 80 jobs for each of 2 seeds, Poisson arrivals at load 0.70"
    assert lines[3].split()[:2] == ["POLICY", "GB/s"]
    assert [line.split()[0] for line in lines[4:6]] == ["best", "first-fit"]
    assert lines[3].index("AGAINST best") == lines[5].rindex("  ") + 2


def test_the_same_seed_prints_the_same_table(cli: Cli) -> None:
    first = cli(*FAST, "--policy", "all", "--seed", "7").out
    assert cli(*FAST, "--policy", "all", "--seed", "7").out == first
    assert cli(*FAST, "--policy", "all", "--seed", "9").out != first


def test_without_a_policy_best_is_compared_with_the_rules_of_others(cli: Cli) -> None:
    assert _policies(cli(*FAST, "-o", "json").out) == ["best", *RIVALS]


def test_all_policies_come_in_one_order_after_those_named(cli: Cli) -> None:
    found = _policies(cli(*FAST, "-o", "json", "--policy", "random,all").out)
    assert found == ["random", *(name for name in POLICIES if name != "random")]


def test_a_policy_draws_apart_from_the_arrivals() -> None:
    drawn = {_source(seed, what).random() for seed in (1, 2) for what in ("jobs", "nvidia")}
    assert len(drawn) == 4


def test_help_names_every_policy(cli: Cli) -> None:
    text = re.sub(r"-\n +", "-", cli("--help").out)  # wrapped at a hyphen
    assert set(POLICIES) <= set(re.findall("[a-z-]+", text))


def test_short_output_is_a_line_for_each_policy(cli: Cli) -> None:
    lines = cli(*FAST, "-o", "short", "--policy", "best", "--policy", "hami").out.splitlines()
    assert [line.split()[0] for line in lines] == ["best", "hami"]
    assert "NUMA split" in lines[0]


@pytest.mark.parametrize("machine", ["dgx-1v", "dgx-2", "l40s-pcie-4", "gb200-nvl72"])
@pytest.mark.parametrize("seeds", ["1", "3"])
def test_json_has_the_shape_of_the_schema(cli: Cli, machine: str, seeds: str) -> None:
    outcome = cli("--machine", machine, "--jobs", "60", "--seeds", seeds, "-o", "json")
    _validate(outcome.out)
    assert outcome.code == 0


def test_json_of_jobs_that_cannot_be_measured_has_the_shape_of_the_schema(cli: Cli) -> None:
    text = "duration_s,gpus\n60,1\n60,99\n"
    outcome = cli(*FAST, "--trace", "-", "-o", "json", stdin=text)
    _validate(outcome.out)
    assert json.loads(outcome.out)["jobs"]["too_large"] == 0.5
    assert json.loads(outcome.out)["policies"][1]["against_first"] is None


def test_rules_that_cannot_be_asked_are_named_under_the_table(cli: Cli) -> None:
    outcome = cli("--machine", "dgx-2", "--jobs", "20", "--seeds", "1")
    assert outcome.code == 0
    assert "left out: nvidia: NVIDIA's policy is not imitated for 16 GPUs" in outcome.out
    assert "best    " in outcome.out


def test_a_rule_asked_for_by_name_that_cannot_be_asked_is_an_error(cli: Cli) -> None:
    outcome = cli("--machine", "dgx-2", "--policy", "best,nvidia")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: NVIDIA's policy is not imitated for 16 GPUs")


def test_recorded_arrivals_are_kept(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "own.csv"
    rows = "".join(f"{100 * n},300,{1 + n % 3}\n" for n in range(40))
    trace.write_text(f"arrival_s,duration_s,gpus\n{rows}", encoding="utf-8")
    jobs = json.loads(cli(*FAST[:2], "--trace", str(trace), "-o", "json").out)["jobs"]
    assert (jobs["arrivals"], jobs["per_seed"]) == ("recorded", 40)
    assert jobs["load"] == pytest.approx(300 * sum(1 + n % 3 for n in range(40)) / (4_200 * 8))
    fewer = json.loads(cli(*FAST, "--jobs", "5", "--trace", str(trace), "-o", "json").out)["jobs"]
    assert (fewer["arrivals"], fewer["per_seed"]) == ("recorded", 5)


def test_recorded_jobs_are_counted_once_and_have_no_interval(cli: Cli) -> None:
    text = "arrival_s,duration_s,gpus\n" + "".join(f"{100 * n},300,2\n" for n in range(40))
    command = (*FAST, "--policy", "best,random", "--seed", "7", "--trace", "-")
    found = json.loads(cli(*command, "-o", "json", stdin=text).out)
    assert found["jobs"]["seeds"] == [7]
    assert [row["decisions"] for row in found["policies"]] == [40, 40]
    assert found["policies"][1]["against_first"]["ci95"] is None
    table = cli(*command, stdin=text).out
    assert "-: 40 jobs for one seed, arrivals as recorded" in table
    assert "the recorded jobs are the same for every seed: they are replayed once" in table
    assert "±" not in table
    assert "±" in cli(*command, "--load", "0.5", stdin=text).out


def test_one_job_is_not_jobs_and_one_row_not_rows(cli: Cli) -> None:
    text = "arrival_s,duration_s,gpus\n0,60,2\n0,60,0\n"
    table = cli(*FAST, "--trace", "-", stdin=text).out
    assert "-: 1 job for one seed" in table
    assert "measured: 1 of 1 job, those of" in table
    assert "left out: 1 row, no GPU asked for" in table


def test_where_the_best_sets_are_not_proven_nothing_is_a_share_of_them(
    cli: Cli, tmp_path: Path
) -> None:
    snapshot = tmp_path / "mesh.json"
    snapshot.write_text(encode(MESH), encoding="utf-8")
    command = ("--snapshot", str(snapshot), "--jobs", "60", "--seeds", "2")
    outcome = cli(*command, "-o", "json")
    _validate(outcome.out)
    found = json.loads(outcome.out)
    assert not found["machine"]["exact"]
    for row in found["policies"]:
        assert [name for name in OF_BEST if row[name] is not None] == []
        assert row["mean_gb_s"] > 0
    table = cli(*command).out
    assert "the best sets of this machine are not proven to be the best" in table
    assert "OF BEST" in table


def test_a_load_asked_for_draws_new_arrivals(cli: Cli) -> None:
    text = "arrival_s,duration_s,gpus\n0,10,2\n60,10,1\n"
    jobs = json.loads(cli(*FAST, "--trace", "-", "--load", "0.5", "-o", "json", stdin=text).out)
    assert (jobs["jobs"]["arrivals"], jobs["jobs"]["load"]) == ("poisson", 0.5)


def test_arrivals_of_a_whole_cluster_are_drawn_anew_and_that_is_said(cli: Cli) -> None:
    text = "arrival_s,duration_s,gpus\n" + "0,1000,8\n" * 60
    outcome = cli(*FAST, "--trace", "-", stdin=text)
    assert "Poisson arrivals at load 0.70" in outcome.out
    assert "the recorded arrivals offer 60.0 times what this node has" in outcome.out


def test_sizes_and_run_times_may_come_from_two_files(cli: Cli, tmp_path: Path) -> None:
    sizes, times = tmp_path / "sizes.csv", tmp_path / "times.csv"
    sizes.write_text("gpus,jobs\n1,3\n2,1\n", encoding="utf-8")
    times.write_text("quantile,seconds\n0,10\n1,20\n", encoding="utf-8")
    both = cli(*FAST, "--trace", str(sizes), "--trace", str(times))
    assert f"{sizes} + {times}: 80 jobs" in both.out
    assert f"{sizes}, run times of philly: 80" in cli(*FAST, "--trace", str(sizes)).out
    assert f"{times}, sizes of philly: 80" in cli(*FAST, "--trace", str(times)).out
    twice = cli(*FAST, "--trace", str(sizes), "--trace", str(sizes))
    assert (twice.code, "both tell the sizes of jobs" in twice.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("--policy", "bset"), "error: --policy: 'bset' is not one of best"),
        (("--policy", "bset"), "did you mean 'best'?"),
        (("--jobs", "0"), "error: --jobs: 0 is not between"),
        (("--seeds", "0"), "error: --seeds: 0 is not between"),
        (("--load", "0"), "error: --load: 0 is not above 0"),
        (("--load", "nan"), "error: argument --load: invalid float value: 'nan'"),
        (("--workload", "filly"), "did you mean 'philly'?"),
        (("--trace", "/nowhere.csv"), "error: cannot read /nowhere.csv"),
        (("--trace", "/nowhere.csv", "--workload", "pai"), "error: --trace and --workload exclude"),
        (("--plot", "/tmp/plot.pdf"), "name a file that ends in .svg or .png"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_2(
    cli: Cli, arguments: tuple[str, ...], cause: str
) -> None:
    outcome = cli(*FAST, *arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert cause in outcome.err


def test_a_machine_without_a_choice_is_an_error(cli: Cli) -> None:
    text = "        GPU0    CPU Affinity\nGPU0     X      0-7\n"
    outcome = cli("--topo-m", "-", stdin=text)
    assert (outcome.code, "fewer than 2 GPUs" in outcome.err) == (2, True)


def _run_on_a_terminal(*arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tests.bench.traces", "--machine", "dgx-1v"]
    child = subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        cwd=Path(__file__).parents[3],
    )
    os.close(theirs)
    return child, ours


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # EIO: Linux reports so that nobody holds the terminal's other end
        return b""


def _read_until(terminal: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen and (more := _read(terminal)):
        seen += more
    return seen


def _read_all(terminal: int) -> bytes:
    return b"".join(iter(lambda: _read(terminal), b""))


def test_a_long_run_counts_on_a_terminal_and_ends_cleanly_on_ctrl_c() -> None:
    child, terminal = _run_on_a_terminal("--jobs", "100000", "--seeds", "1000")
    try:
        seen = _read_until(terminal, "…".encode())
        assert b"seed 1 of 1000, " in seen
        child.send_signal(signal.SIGINT)
        rest = _read_all(terminal)
        assert child.wait(timeout=120) == 130
        assert b"Traceback" not in rest
        assert rest.endswith(b"\r\x1b[K")
    finally:
        child.kill()
        os.close(terminal)
