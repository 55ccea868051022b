# A headless Chromium, driven over the two pipes of its DevTools protocol (messages of JSON, each
# ended by a zero byte). Knows pages and events, nothing of what they are to show.
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATH = shutil.which("chromium") or shutil.which("chromium-browser")


def _pipe():
    """Both ends above the numbers 3 and 4 that the browser will have its own at."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high


class Browser:
    """One tab. `requests` are the URLs that the page asked for, `errors` what its scripts threw."""

    def __init__(self, width=1280, height=900):
        self._folder = tempfile.mkdtemp(prefix="stasis-browser-")
        their_in, self._out = _pipe()
        self._in, their_out = _pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{their_in} 4>&{their_out}', "bash", PATH, "--headless",
             "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self._folder}", "about:blank"],
            pass_fds=(their_in, their_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        os.close(their_in)
        os.close(their_out)
        self._buffer, self._number, self._session = b"", 0, None
        self.requests, self.errors, self._events = [], [], []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Network":
            self.call(domain + ".enable")
        self.resize(width, height)

    def close(self):
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process.pid, signal.SIGKILL) # its own group, and all that it started
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _receive(self, seconds=60):
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, until - time.monotonic()))
            piece = os.read(self._in, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("the browser says nothing more")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        self._events.append(event["method"])
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["params"]["exceptionDetails"]))

    def call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self._note(answer)

    def open(self, path):
        self.requests.clear()
        self.errors.clear()
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._note(self._receive())

    def evaluate(self, expression):
        """The value of an expression in the page, as JSON has it."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": name}])

    def press(self, key):
        for kind in "keyDown", "keyUp":
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def point(self, selector, click=False):
        """Moves the mouse over an element, and clicks if asked."""
        x, y = self.evaluate(f"""(() => {{
            const node = document.querySelector({json.dumps(selector)});
            node.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = node.getClientRects()[0];
            return [box.left + box.width / 2, box.top + box.height / 2];
        }})()""")
        kinds = ["mouseMoved"] + (["mousePressed", "mouseReleased"] if click else [])
        for kind in kinds:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=1,
                      button="none" if kind == "mouseMoved" else "left")
