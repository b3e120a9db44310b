"""The file of pools is followed where it is; variables for jobs are names of a list."""

from pathlib import Path

import pytest

from nodetopo.errors import InputError
from nodetopo.nccl.job import JobVariable
from tests.kernel.settings.reloaders import running, write
from tests.kernel.settings.resolving import resolve


def test_a_changed_file_of_pools_is_applied_and_one_that_appears_at_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = write(tmp_path / "pools.json", "{}")
    with running(flags={"rdma_config": str(pools)}) as it:
        write(pools, "{ }")
        assert it.poll(looks=3) == 1
    usual = tmp_path / "usual.json"
    monkeypatch.setattr("nodetopo.components.rdma.settings.RDMA_USUAL_PLACE", usual)
    with running() as it:
        assert it.reloader.current.settings.rdma_config is None
        write(usual, "{}")
        assert it.poll(looks=3) == 1
        assert it.applied[-1].rdma_config == usual
        usual.unlink()
        assert it.poll(looks=3) == 1
        assert it.applied[-1].rdma_config is None


@pytest.mark.parametrize(
    ("yaml", "value"),
    [
        ("job-variables: none", ()),
        ("job-variables: []", ()),
        ("job-variables: all", tuple(JobVariable)),
        ("job-variables: [NCCL_IB_HCA]", (JobVariable.NCCL_IB_HCA,)),
        (
            "job-variables: UCX_NET_DEVICES, NCCL_IB_HCA",
            (JobVariable.UCX_NET_DEVICES, JobVariable.NCCL_IB_HCA),
        ),
    ],
)
def test_a_value_is_read(yaml: str, value: object) -> None:
    assert resolve(yaml).settings.job_variables == value


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("job-variables: NCCL_IB_HCAS", "did you mean 'NCCL_IB_HCA'?"),
        ("job-variables: [all, NCCL_IB_HCA]", "not one of NCCL_IB_HCA, UCX_NET_DEVICES"),
        ("job-variables: [NCCL_IB_HCA, NCCL_IB_HCA]", "not a list of different values"),
    ],
)
def test_what_does_not_do_is_refused(yaml: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(yaml)
    assert words in str(raised.value)
