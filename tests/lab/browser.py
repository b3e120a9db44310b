"""Headless Chromium, driven over a pipe by its DevTools protocol.

Source: chromedevtools.github.io/devtools-protocol; ``--remote-debugging-pipe`` reads commands from
descriptor 3 and writes answers and events to descriptor 4, each a JSON document that ends with NUL.
"""

import base64
import dataclasses
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.debian import ensure_installed

LIMIT_S = 60.0
"""Of one command and of one page, which take a fraction of a second."""

_QUIET_S = 0.3
"""After the end of a page's loading: what it might still ask for, or complain of."""


@dataclasses.dataclass
class Page:
    """What became of a page.

    Attributes:
        width: of its content in CSS pixels, scrolled or not.
        requests: URLs that it asked for, its own first.
        console: what it made the browser complain of, violations of its policy included.
        background: computed colour of the body.
        png: a picture of all of it.
    """

    width: float
    requests: list[str]
    console: list[str]
    background: str
    png: bytes


@dataclasses.dataclass
class Browser:
    """One running browser."""

    commands: int
    answers: int
    _count: int = 0
    _rest: bytes = b""
    _events: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def look(
        self,
        url: str,
        *,
        width: int,
        height: int = 900,
        dark: bool = False,
        most: int | None = None,
    ) -> Page:
        """Open *url* in a window of *width* and without scripts, and return what became of it.

        The picture has all of the page, or its upper *most* pixels.
        """
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        session = attached["sessionId"]

        def call(method: str, **given: Any) -> dict[str, Any]:
            return self.call(method, given, session)

        for domain in ("Page", "Network", "Log", "Runtime", "DOM", "CSS"):
            call(f"{domain}.enable")
        call("Emulation.setScriptExecutionDisabled", value=True)
        is_phone = width < 600
        call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        call("Page.navigate", url=url)
        self._until("Page.loadEventFired")
        self._drain(_QUIET_S)
        size = call("Page.getLayoutMetrics")["cssContentSize"]
        root = call("DOM.getDocument")["root"]["nodeId"]
        body = call("DOM.querySelector", nodeId=root, selector="body")["nodeId"]
        style = call("CSS.getComputedStyleForNode", nodeId=body)["computedStyle"]
        background = next(it["value"] for it in style if it["name"] == "background-color")
        shown = min(size["height"], most or size["height"])
        clip = {"x": 0, "y": 0, "width": width, "height": shown, "scale": 1}
        picture = call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        found = Page(
            width=size["width"],
            requests=[it["request"]["url"] for it in self._of("Network.requestWillBeSent")],
            console=[it["entry"]["text"] for it in self._of("Log.entryAdded")]
            + [str(it["args"]) for it in self._of("Runtime.consoleAPICalled")],
            background=background,
            png=base64.b64decode(picture["data"]),
        )
        self.call("Target.closeTarget", {"targetId": target})
        return found

    def call(
        self, method: str, given: Mapping[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Return the result of a command.

        Raises:
            RuntimeError: the browser refuses it.
        """
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": dict(given or {})}
        if session is not None:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + LIMIT_S
        while True:
            answer = self._next(end)
            if answer.get("id") == number:
                break
            self._events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _of(self, method: str) -> Iterator[dict[str, Any]]:
        return (it["params"] for it in self._events if it.get("method") == method)

    def _until(self, method: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not any(self._of(method)):
            self._events.append(self._next(end))

    def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                self._events.append(self._next(end))
            except TimeoutError:
                return

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = max(0.0, end - time.monotonic())
            if not select.select([self.answers], [], [], left)[0]:
                raise TimeoutError("the browser says nothing")
            more = os.read(self.answers, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser with a profile of its own, and end it with all of its processes."""
    program: Path = ensure_installed("chromium", program="chromium")
    to_read, commands = os.pipe()
    answers, to_write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="nt-browser-", ignore_cleanup_errors=True) as profile:
        flags = (
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update"),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}"),
        )
        process = subprocess.Popen(
            # The protocol's descriptors are 3 and 4, whatever ours are; dash knows one digit.
            [
                *("sh", "-c", 'exec 3<"/dev/fd/$1" 4>"/dev/fd/$2"; shift 2; exec "$@"', "sh"),
                *(str(to_read), str(to_write), str(program), *flags),
            ],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            yield Browser(commands, answers)
        finally:
            os.close(commands)
            os.close(answers)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait(10)
