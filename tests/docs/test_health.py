"""The page about the health of devices."""

from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.xid import ROWS
from scripts.generators.health import page


def test_the_page_has_every_code_and_every_class() -> None:
    text = page()
    for row in ROWS:
        assert f"| {row.meaning} |" in text
    assert all(f"| `{kind}` |" in text for kind in HealthClass)
    assert "8, 11, 14, 25, 32, 37-41, 44, 60," in text
