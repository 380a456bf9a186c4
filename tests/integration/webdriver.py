"""A small WebDriver client (W3C protocol, JSON over HTTP) for Debian's chromium-driver. Standard library only."""
import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "tab": "\ue004", "shift": "\ue008", "alt": "\ue00a"}


class Browser:
    def __init__(self, folder, width=1280, height=860):
        self.port = free_port()
        self.log = open(f"{folder}/chromedriver.log", "wb")
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=self.log, stderr=self.log)
        self.session = ""
        wait_for(lambda: self.call("GET", "/status")["ready"], 120, "chromedriver")
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                            f"--user-data-dir={folder}/profile", f"--window-size={width},{height}"]}
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 120000, "pageLoad": 120000}}}})
        self.session = "/session/" + answer["sessionId"]

    def call(self, method, path, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=240) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as e:
            value = json.load(e)["value"]
            raise AssertionError(f"{path}: {value['error']}: {value['message'].splitlines()[0]}") from None

    def close(self):
        try:
            if self.session:
                self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            try:
                self.driver.wait(10)
            except subprocess.TimeoutExpired:
                self.driver.kill()
            self.log.close()

    def open(self, url):
        self.call("POST", self.session + "/url", {"url": url})

    def run(self, script, *args):
        return self.call("POST", self.session + "/execute/sync", {"script": script, "args": list(args)})

    def element(self, css):
        return self.call("POST", self.session + "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.call("POST", f"{self.session}/element/{self.element(css)}/click")

    def type(self, css, text):
        self.call("POST", f"{self.session}/element/{self.element(css)}/value", {"text": text})

    def keys(self, *names):
        """Presses the keys one after the other, with those before held down: keys("alt", "n")."""
        codes = [KEYS.get(n, n) for n in names]
        actions = [{"type": "keyDown", "value": c} for c in codes] + [{"type": "keyUp", "value": c} for c in reversed(codes)]
        self.call("POST", self.session + "/actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def text(self, css):
        return self.run("const n = document.querySelector(arguments[0]); return n && n.offsetParent !== null ? n.innerText : null", css)

    def wait(self, condition, *args, seconds=120):
        """Waits until the JavaScript expression is true and returns its value."""
        return wait_for(lambda: self.run(f"return {condition}", *args), seconds, condition)

    def device(self, width, height, dark=False, touch=False):
        """Size of the window as a phone reports it, and the preferred colours."""
        def cdp(command, params):
            self.call("POST", self.session + "/goog/cdp/execute", {"cmd": command, "params": params})
        cdp("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch})
        cdp("Emulation.setTouchEmulationEnabled", {"enabled": touch})
        cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("GET", self.session + "/screenshot")))

    def console(self):
        """What the page wrote to the console since the last call: errors of the script show here."""
        return self.call("POST", self.session + "/se/log", {"type": "browser"})


def have_browser():
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while True:
        try:
            value = condition()
        except (urllib.error.URLError, ConnectionError):
            value = None
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for: {what}")
        time.sleep(0.05)
