"""A headless Chromium that is driven as a person would: mouse, keys (Chrome DevTools Protocol, over pipes)."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from support.tools import has, tool

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The browser; the test is skipped where there is none."""
    return tool(next(filter(has, _NAMES), _NAMES[0]))


class Tab:
    """One page. ``requests`` are the addresses that it fetched."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, os.fdopen(from_browser, "rb")
        self._number, self._buffer, self._session = 0, b"", None
        self.requests: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._in.fileno(), 1 << 16)
            assert data, "the browser has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer = json.loads(text)
        if answer.get("method") == "Network.requestWillBeSent":
            self.requests.append(answer["params"]["request"]["url"])
        return answer

    def open(self, address: str, *, width: int = 1400, height: int = 900, scripts: bool = True) -> None:
        """Open a page in a window of that size, and wait until it is there."""
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)
        while self._next().get("method") != "Page.loadEventFired":
            pass
        if scripts:
            while self.ask("document.readyState") != "complete" or self.ask("location.href") == "about:blank":
                pass

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def click(self, selector: str) -> None:
        """Click into the middle of the first shown element, as a mouse does."""
        x, y = self.ask(
            f"(() => {{ const e = [...document.querySelectorAll({json.dumps(selector)})].find((e) => e.checkVisibility());"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int) -> None:
        """Press a key by its name and Windows key code."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text)

    def clipboard(self) -> str:
        """What was copied last."""
        session, self._session = self._session, None
        self.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self._session = session
        return self.ask("navigator.clipboard.readText()")

    def shown(self, selector: str) -> list[str]:
        """The texts of elements that can be seen."""
        words = json.dumps(selector)
        return self.ask(
            f"[...document.querySelectorAll({words})].filter((e) => e.checkVisibility()).map((e) => e.innerText)"
        )


@contextlib.contextmanager
def browser() -> Iterator[Tab]:
    """A tab of a browser that knows nothing."""
    program = chromium()
    for_browser, to_browser = os.pipe()
    from_browser, by_browser = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        words = f'exec "$0" "$@" 3<&{for_browser} 4>&{by_browser}'
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        process = subprocess.Popen(
            ["bash", "-c", words, program, *options], pass_fds=(for_browser, by_browser), stderr=subprocess.DEVNULL
        )
        os.close(for_browser)
        os.close(by_browser)
        tab = Tab(to_browser, from_browser)
        try:
            yield tab
        finally:
            process.terminate()
            process.wait(30)
            os.close(to_browser)
            tab._in.close()
