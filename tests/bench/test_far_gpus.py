"""The promise of `docs/internals/placement.md` on jobs of one GPU, at a size fit for CI."""

import pytest

from tests.bench.far_gpus import TRACES, main, rows


@pytest.mark.parametrize("trace", TRACES)
def test_jobs_of_several_gpus_are_near_the_hca_more_often(trace: str) -> None:
    found = {name: far for name, far, _ in rows(trace, (1, 2), 1000)}
    assert found["**ours**"] < found["near first"]
    assert found["**ours**"] < min(found["nvidia"], found["kubelet"])


def test_the_table_has_a_line_for_each_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["far_gpus", "--jobs", "100", "--seeds", "1"])
    main()
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(TRACES)
