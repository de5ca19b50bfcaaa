"""A real Chromium without a window, driven through the protocol that all browsers speak."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
WHY_NOT = "no Chromium here: install the packages chromium and chromium-driver"

_OPTIONS = {
    "binary": CHROMIUM,
    "args": [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--force-color-profile=srgb",
        "--hide-scrollbars",
        "--disable-background-networking",
    ],
}


class Browser:
    """One browser; `close` ends it."""

    def __init__(self):
        self._driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._home = f"http://127.0.0.1:{self._port()}"
        asked = {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": _OPTIONS,
        }
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        self._home += f"/session/{made['sessionId']}"

    def _port(self):
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                return int(line.rsplit("port", 1)[1].strip(" .\n"))
        raise RuntimeError("chromedriver did not start")

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310
            self._home + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def close(self):
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()
            self._driver.stdout.close()

    def devtools(self, command, **params):
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def open(self, path, *, dark=False, width=1280, height=900, scripts=True, touch=False):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.devtools("Emulation.setEmulatedMedia", features=features)
        self.devtools("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=touch,
        )
        self.logs("browser"), self.logs("performance")
        self._call("POST", "/url", {"url": Path(path).resolve().as_uri()})
        if scripts:
            self.settle()

    def settle(self):
        """Wait until two frames have been drawn."""
        script = (
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )
        self._call("POST", "/execute/async", {"script": script, "args": []})

    def run(self, script, *args):
        return self._call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def logs(self, kind):
        return self._call("POST", "/se/log", {"type": kind})

    def console(self):
        """What the page, or the browser about it, has said."""
        return [entry["message"] for entry in self.logs("browser")]

    def requests(self):
        """Every address that was asked for."""
        messages = (json.loads(entry["message"])["message"] for entry in self.logs("performance"))
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def press(self, *keys):
        for key in keys:
            text = key if len(key) == 1 else ""
            for kind in ("keyDown", "keyUp"):
                self.devtools("Input.dispatchKeyEvent", type=kind, key=key, text=text)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.devtools("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def box(self, selector):
        """Left, top, width and height of an element, after it was scrolled into view."""
        return self.run(
            "const e = document.querySelector(arguments[0]);"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]",
            selector,
        )

    def picture(self, path, *, whole=True):
        """Take a screenshot, of the whole page or of what is seen of it."""
        clip = {}
        if whole:
            size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {**size, "scale": 1}, "captureBeyondViewport": True}
        shot = self.devtools("Page.captureScreenshot", format="png", **clip)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def wait(self, script, seconds=10):
        """Wait until a script gives something true."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, script
            time.sleep(0.02)
        return found
