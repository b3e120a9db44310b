"""The table of measured bandwidths: what is read from it, and what is refused."""

from typing import Any

import pytest

from nodetopo.allocation.measured import (
    HIGHEST_GB_S,
    MOST_ENTRIES,
    Measured,
    Operation,
    bandwidth_table,
    coverage,
)
from nodetopo.errors import DecodeError
from nodetopo.machines.bundled import machine

DGX = machine("dgx-1v")


def document(**changed: Any) -> dict[str, Any]:
    """Return a table of one pair, with some keys changed; ``...`` leaves one out."""
    whole = {
        "kind": "nodetopo-bandwidth-table",
        "version": 1,
        "machine": "DGX-1V",
        "unit": "GB/s",
        "pairs": [{"gpus": [0, 1], "bandwidth": 24.1}],
        **changed,
    }
    return {key: value for key, value in whole.items() if value is not ...}


def test_figures_are_kept_by_index_in_tenths() -> None:
    table = bandwidth_table(document(sets=[{"gpus": [0, 1, 2], "bandwidth": 92}]))
    assert table.machine == "DGX-1V"
    assert table.on(DGX) == Measured(
        pairs={frozenset({0, 1}): 241}, sets={frozenset({0, 1, 2}): 920}
    )


@pytest.mark.parametrize(
    ("keys", "operation"),
    [
        ({"operation": "alltoall_perf"}, Operation.ALLTOALL),
        ({"operation": "alltoall_perf", "machine": "by reduce_perf"}, Operation.ALLTOALL),
        ({"machine": "nccl-tests: all_gather_perf"}, Operation.ALL_GATHER),
        ({"machine": "reduce_perf, broadcast_perf, sets by reduce_perf"}, Operation.REDUCE),
        ({"machine": "reduce_perf and broadcast_perf"}, Operation.ALL_REDUCE),
        ({"machine": ...}, Operation.ALL_REDUCE),
    ],
)
def test_the_operation_of_the_sets_has_a_key_and_is_found_in_older_tables(
    keys: dict[str, Any], operation: Operation
) -> None:
    assert bandwidth_table(document(**keys)).operation is operation


def test_a_gpu_is_named_by_index_uuid_or_pci_address() -> None:
    gpus = DGX.gpus
    names = ["0", gpus[1].id, str(gpus[2].pci), "GPU3"]
    table = bandwidth_table(document(pairs=..., sets=[{"gpus": names, "bandwidth": 90}]))
    assert list(table.on(DGX).sets) == [frozenset({0, 1, 2, 3})]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "not a bandwidth table"),
        (document(kind="table"), "kind: expected 'nodetopo-bandwidth-table'"),
        (document(kind=...), "kind: expected 'nodetopo-bandwidth-table', found nothing"),
        (document(version=2), "version: expected 1, found 2"),
        (document(version=True), "version: expected 1, found True"),
        (document(unit="Gbit/s"), "unit: expected 'GB/s', found 'Gbit/s'"),
        (document(unit=...), "unit: expected"),
        (document(pair=[]), "unknown key 'pair' — did you mean 'pairs'?"),
        (document(machine=4), "machine: not a text"),
        (document(operation="all_reduce"), "operation: not a program of nccl-tests: 'all_reduce'"),
        (document(operation=["all_reduce_perf"]), "operation: not a program of nccl-tests: a list"),
        (document(pairs=...), "the table holds no figures"),
        (document(pairs={}), "pairs: not a list"),
        (document(pairs=[7]), "pairs[0]: not of the form {gpus: […], bandwidth: …}: 7"),
        (document(pairs=[{"gpus": [0, 1], "bandwith": 1}]), "pairs[0]: unknown key 'bandwith'"),
        (document(pairs=[{"gpus": 0, "bandwidth": 1}]), "pairs[0].gpus: not a list of GPUs: 0"),
        (document(pairs=[{"gpus": [0, 1.5], "bandwidth": 1}]), "pairs[0].gpus: not a GPU: 1.5"),
        (document(pairs=[{"gpus": [0, True], "bandwidth": 1}]), "not a GPU: True"),
        (document(pairs=[{"gpus": [0, [1]], "bandwidth": 1}]), "not a GPU: a list"),
        (document(pairs=[{"gpus": [0], "bandwidth": 1}]), "one GPU alone"),
        (document(pairs=[{"gpus": [0, 1, 2], "bandwidth": 1}]), "a pair is two GPUs"),
        (document(pairs=[{"gpus": [0, 1]}]), "pairs[0].bandwidth: not a number: nothing"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": "9"}]), "not a number: '9'"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": True}]), "not a number: True"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": float("nan")}]), "not a number: nan"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": float("inf")}]), "inf is no bandwidth"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": -4.0}]), "-4.0 is below 0.1 GB/s"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": 0}]), "0 is below 0.1 GB/s"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": 10**400}]), "a huge number"),
        (document(pairs=[{"gpus": [0, 1], "bandwidth": HIGHEST_GB_S + 1}]), "give it in GB/s"),
        (document(pairs=[None] * (MOST_ENTRIES + 1)), "more than 100000 entries"),
    ],
)
def test_what_is_no_table_is_refused_and_the_entry_named(found: object, words: str) -> None:
    with pytest.raises(DecodeError) as raised:
        bandwidth_table(found)
    assert words in str(raised.value)
    assert raised.value.cure


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([{"gpus": [0, 8], "bandwidth": 1}], "pairs[0].gpus: unknown GPU '8' — "),
        ([{"gpus": [0, "GPU0"], "bandwidth": 1}], "pairs[0].gpus: GPU0 is named twice"),
        (
            [{"gpus": [0, 1], "bandwidth": 1}, {"gpus": ["GPU1", 0], "bandwidth": 2}],
            "pairs[1]: the same GPUs as pairs[0]",
        ),
    ],
)
def test_a_table_that_does_not_fit_the_machine_is_refused(pairs: object, words: str) -> None:
    table = bandwidth_table(document(pairs=pairs))
    with pytest.raises(DecodeError) as raised:
        table.on(DGX)
    assert words in str(raised.value)


def test_a_pair_may_also_be_measured_as_a_set() -> None:
    sets = [{"gpus": [0, 1], "bandwidth": 20}]
    assert bandwidth_table(document(sets=sets)).on(DGX).sets == {frozenset({0, 1}): 200}


def test_coverage_counts_the_sets_of_each_size() -> None:
    sets = [{"gpus": gpus, "bandwidth": 9} for gpus in ([0, 1, 2, 3], [0, 1], [4, 5, 6, 7])]
    measured = bandwidth_table(document(sets=sets)).on(DGX)
    expected = "measured: 1 of 28 pairs, 1 of 28 sets of 2, 2 of 70 sets of 4"
    assert coverage(measured, 8) == expected
