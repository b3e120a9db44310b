"""The file of pools is followed, at the place that the settings name or at the usual one."""

from pathlib import Path

import pytest

from tests.kernel.settings.reloaders import running, write


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
