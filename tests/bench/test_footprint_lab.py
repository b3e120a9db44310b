"""The command line of the bench; what it measures needs the lab."""

from pathlib import Path

import pytest

from tests.bench.footprint_lab import main


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("no-checkout", 2), ("--x", 2)])
def test_what_is_no_checkout_is_not_measured(
    argument: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([argument])
    assert ended.value.code == status
