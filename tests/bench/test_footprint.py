"""The bench of the daemon's footprint runs."""

from tests.bench.footprint import ROOT, measure, table


def test_the_daemon_and_its_child_are_measured() -> None:
    (footprint,) = measure((ROOT,), runs=1, settled_s=0.0)
    assert footprint.start[0] > 0
    assert footprint.daemon[0] > footprint.child[0] > 0
    assert footprint.modules > 100
    assert footprint.lines > 100 * footprint.modules
    assert len(table(("this checkout",), [footprint])) == 2
