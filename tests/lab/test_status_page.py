"""The status page in a browser without scripts: on a phone and a desktop, light and dark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nodetopo.components.page.answer import Answer, StatusPage
from nodetopo.components.page.state import PageState
from nodetopo.kernel.http.server import PageAnswer, serve_metrics
from tests.components.page.states import STATES, busy
from tests.components.page.test_answer import HOSTILE, hostile
from tests.kernel.readings import readings
from tests.lab.browser import Browser, chromium

pytestmark = pytest.mark.lab

PHONE, DESKTOP = 390, 1280

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 24, 28)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextmanager
def served(answer: Callable[[str], PageAnswer | None]) -> Iterator[str]:
    """Serve a page as the daemon does; yield its URL."""
    server = serve_metrics("127.0.0.1:0", readings, page=answer)
    try:
        yield server.url.removesuffix("metrics")
    finally:
        server.close()


def check(browser: Browser, made: PageState, width: int, *, dark: bool) -> None:
    """Look at the page of *made*, and at nothing else that it might ask for."""
    with served(StatusPage(lambda: made).answer) as url:
        seen = browser.look(url, width=width, dark=dark)
    assert [it for it in seen.requests if it != "data:,"] == [url]
    assert seen.console == []
    assert seen.width <= width
    assert seen.background == (DARK if dark else LIGHT)
    assert seen.png.startswith(b"\x89PNG")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", sorted(STATES))
def test_the_page_fits_and_asks_for_nothing(
    browser: Browser, name: str, width: int, *, dark: bool
) -> None:
    check(browser, STATES[name](), width, dark=dark)


@pytest.mark.parametrize("text", [*HOSTILE, "W" * 3000])
def test_hostile_words_neither_run_nor_widen_the_page(browser: Browser, text: str) -> None:
    check(browser, hostile(text), PHONE, dark=False)


def test_a_script_would_be_seen(browser: Browser) -> None:
    made = StatusPage(busy).answer("/")
    assert made is not None
    script = b"<style>p{color:red}</style><img src=/x.png></main>"
    worse = Answer(made.content_type, made.body.replace(b"</main>", script), made.headers)
    with served(lambda target: worse if target == "/" else None) as url:
        seen = browser.look(url, width=DESKTOP)
    assert any("Content Security Policy" in line for line in seen.console)


def test_a_page_that_is_too_wide_would_be_seen(browser: Browser) -> None:
    made = StatusPage(busy).answer("/")
    assert made is not None
    wide = made.body.replace(b"<main>", b"<main><svg width=2000 height=9></svg>")
    with served(lambda _: Answer(made.content_type, wide, made.headers)) as url:
        assert browser.look(url, width=PHONE).width > PHONE
