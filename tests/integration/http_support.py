"""What the tests of the server share: starting and ending it, raw requests, reading metrics. Standard library only.

Every wait has a deadline; a server that is still there at the end of a test program is killed."""
import atexit
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from openapi_contract import Contract

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "build/bathyc"
SANITIZED = any(mark in open(PROGRAM, "rb").read() for mark in (b"__asan_init", b"__tsan_init"))
SLOW = 10 if SANITIZED else 1  # a sanitized program takes so much longer
DEADLINE = 600 if SANITIZED else 120  # of waits whose length says nothing: only what hangs takes so long
SCALE = int(os.environ.get("BY_TEST_SCALE", "100"))
servers = []
contract = Contract(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../web/openapi.json"))


def scaled(n, least):
    """n at BY_TEST_SCALE=100 and above; fewer below, but at least so many that the test still tests the same."""
    return max(least, n * min(SCALE, 100) // 100)


def pace():
    """By how much longer something takes here and now than usual: the machine may be slow, and others may use it. From 1 to 10, so that
    no program makes its own bound meaningless by keeping the machine busy. Measured with work that takes 20 ms on an idle machine."""
    began = time.monotonic()
    sum(i * i for i in range(300000))
    return min(max(1.0, (time.monotonic() - began) / 0.02), 10.0)


def slow():
    """By how much the bound of something quick is to be multiplied here and now; the program may be sanitized, too."""
    return SLOW * pace()


class Lag(threading.Thread):
    """For how long threads of ours were held up meanwhile although they wanted to go on: `with Lag() as lag: ...; lag.most`. What
    a stream may stand still is counted on top of that, which therefore has an upper bound of its own."""

    MOST = 0.25

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.over = 0.0, False

    def run(self):
        last = time.monotonic()
        while not self.over:
            time.sleep(0.002)
            now = time.monotonic()
            self.most, last = min(max(self.most, now - last), self.MOST), now

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.join()


class Server:
    """`bathyc serve` on a free port; ready when the constructor returns unless wait=False."""

    def __init__(self, *flags, wait=True, env=None):
        argv = [PROGRAM, "serve", "--port", "0", "--ram", "300M", "--max-model-len", "1024", *flags]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        servers.append(self)
        self.lines = []
        self.told = threading.Condition()
        threading.Thread(target=self.read_lines, daemon=True).start()
        self.port = int(re.search(r"listening on http://\S*:(\d+)", self.wait_line("listening on")).group(1))
        if wait:
            self.wait_line("ready after")

    def read_lines(self):
        for line in self.process.stderr:
            with self.told:
                self.lines.append(line.decode(errors="replace"))
                self.told.notify_all()
        with self.told:
            self.lines.append(None)
            self.told.notify_all()

    def wait_line(self, part):
        end = time.monotonic() + DEADLINE
        with self.told:
            while True:
                for line in self.lines:
                    if line and part in line:
                        return line
                if None in self.lines or time.monotonic() > end:
                    raise AssertionError(f"the server did not say '{part}': {self.lines}")
                self.told.wait(1)

    def connect(self, timeout=DEADLINE):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def raw(self, data, shut=False):
        """Sends bytes and reads until the server closes."""
        with self.connect() as s:
            s.sendall(data)
            if shut:
                s.shutdown(socket.SHUT_WR)
            return read_all(s)

    def call(self, method, path, body=None, headers=None):
        """One request on a connection of its own: (status, headers, body bytes). The answer is held against /openapi.json."""
        status, got, data = parse_one(self.raw(request(method, path, body, {"Connection": "close", **(headers or {})})))
        contract.check(method, path, status, got, data)
        return status, got, data

    def json(self, method, path, body=None, headers=None, want=200):
        status, _, data = self.call(method, path, body, headers)
        if status != want:
            raise AssertionError(f"{method} {path}: {status}, want {want}: {data[:500]!r}")
        return json.loads(data)

    def metrics(self):
        text = self.call("GET", "/metrics")[2].decode()
        return {k: float(v) for k, v in re.findall(r"^([^#\s]+(?:\{.*\})?) (\S+)$", text, re.M)}

    def wait_metric(self, name, test, seconds=DEADLINE):
        end = time.monotonic() + seconds
        while True:
            value = self.metrics().get(name)
            if value is not None and test(value):
                return value
            if time.monotonic() > end:
                raise AssertionError(f"{name} is {value}")
            time.sleep(0.02)

    def rss(self):
        """Bytes of memory that the server has now."""
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def n_fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def wait_fds(self, at_most):
        """Waits until the server has no more descriptors than that: connections that end linger for a moment."""
        end = time.monotonic() + DEADLINE
        while self.n_fds() > at_most:
            if time.monotonic() > end:
                raise AssertionError(f"{self.n_fds()} descriptors, want {at_most}")
            time.sleep(0.02)

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        return self.process.wait(DEADLINE)


def request(method, path, body=None, headers=None, version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost"]
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
    return "\r\n".join(lines + ["", ""]).encode() + (body or b"")


def read_all(s):
    out = b""
    while True:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            return out
        if not piece:
            return out
        out += piece


def split_chunks(data):
    out = b""
    while True:
        size, data = data.split(b"\r\n", 1)
        n = int(size, 16)
        if n == 0:
            return out, data[2:]
        out, data = out + data[:n], data[n + 2:]


def parse_responses(data, heads=()):
    """All responses in a byte string; heads: indexes of answers to HEAD."""
    out = []
    while data:
        head, data = data.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        status = int(lines[0].split()[1])
        headers = {k.lower(): v.strip() for k, v in (x.split(":", 1) for x in lines[1:])}
        if status == 100:
            out.append((100, headers, b""))
            continue
        if len(out) in heads or status == 204:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body, data = split_chunks(data)
        elif "content-length" in headers:
            n = int(headers["content-length"])
            if len(data) < n:
                raise AssertionError(f"a body of {n} bytes has {len(data)}")
            body, data = data[:n], data[n:]
        else:
            body, data = data, b""
        out.append((status, headers, body))
    return out


def parse_one(data):
    answers = parse_responses(data)
    if len(answers) != 1:
        raise AssertionError(f"{len(answers)} answers in {data[:300]!r}")
    return answers[0]


def events(body):
    """[(name, data)] of server-sent events; comments are left out."""
    out = []
    for block in body.decode().split("\n\n"):
        name, data = None, None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
        if data is not None:
            out.append((name, data))
    return out


def chat(text="Hi", **more):
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "thinking": {"type": "disabled"}, **more}


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def run(tests):
    """Runs functions in order, tells which failed; the exit code."""
    failed = 0
    for test in tests:
        began = time.monotonic()
        try:
            test()
            print(f"ok      {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception as e:  # any failure counts, and the others run
            failed += 1
            print(f"FAILED  {test.__name__}: {type(e).__name__}: {e}", flush=True)
    return 1 if failed else 0


@atexit.register
def end_servers():
    for s in servers:
        if s.process.poll() is None:
            s.process.kill()
        s.process.wait()
