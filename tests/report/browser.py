"""A page of a Chromium without a window, driven over a pipe by its debugging protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--allow-file-access-from-files", "--remote-debugging-pipe"),
)
PATIENCE_S = 60.0


class Page:
    """The page that a browser has opened; `incoming` and `outgoing` are ends of pipes."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.received, self.calls = b"", 0
        self.events: list[dict[str, Any]] = []
        self.session: dict[str, str] = {}
        targets = self.call("Target.getTargets")["targetInfos"]
        (page,) = (each["targetId"] for each in targets if each["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = {"sessionId": attached["sessionId"]}

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        self.calls += 1
        request = {"id": self.calls, "method": method, "params": params} | self.session
        os.write(self.outgoing, json.dumps(request).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self.calls:
                return message["result"]
            self.events.append(message)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self.received:
            assert select.select([self.incoming], [], [], PATIENCE_S)[0], "the browser is silent"
            more = os.read(self.incoming, 1 << 20)
            assert more, "the browser is gone"
            self.received += more
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + PATIENCE_S
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def complaints(self) -> list[dict[str, Any]]:
        """Errors and warnings of the page's console, and exceptions, since it was opened."""
        for domain in ("Log", "Runtime"):
            self.call(f"{domain}.enable")  # which sends what there was before, too
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [event for event in self.events if event.get("method") in kinds]

    def picture(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])


@contextmanager
def opened(address: str, folder: Path, size: tuple[int, int]) -> Iterator[Page]:
    """A page in a browser of its own, whose files are in `folder`."""
    assert CHROMIUM is not None
    own = f"--user-data-dir={folder / 'user'}", "--window-size={},{}".format(*size)
    # The browser takes calls from descriptor 3 and answers on 4.
    moved = ("sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >&2', "sh")
    with (folder / "browser.log").open("w") as log:
        browser = subprocess.Popen(
            [*moved, CHROMIUM, *FLAGS, *own, address],
            env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert browser.stdin is not None
    assert browser.stdout is not None
    try:
        yield Page(browser.stdout.fileno(), browser.stdin.fileno())
    finally:
        browser.stdin.close()  # which it takes for the end
        browser.stdout.close()
        browser.wait(PATIENCE_S)
