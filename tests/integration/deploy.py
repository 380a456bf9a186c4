"""The server under a systemd of the test, and behind nginx where it is installed.

usage: deploy.py PROGRAM SOURCE FOLDER
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import http_support

PROGRAM, SOURCE, FOLDER = sys.argv[1:4]
PROMPT = {"model": "tiny", "stream": True, "max_tokens": 300 // http_support.SLOW, "ignore_eos": True,
          "messages": [{"role": "user", "content": "Hello"}]}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, what, seconds=http_support.DEADLINE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.05)


class Box:
    """The socket on which a systemd of the test hears its unit."""

    def __init__(self, name, watchdog_us):
        path = f"{FOLDER}/{name}"
        self.env = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": str(watchdog_us)}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(http_support.DEADLINE)
        self.path = path

    def recv(self):
        return self.socket.recv(4096)

    def fill(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)
            try:
                while True:
                    s.sendto(b"WATCHDOG=1", self.path)
            except BlockingIOError:
                pass

    def empty(self):
        self.socket.setblocking(False)
        try:
            while True:
                self.recv()
        except BlockingIOError:
            self.socket.settimeout(http_support.DEADLINE)

    def wait_for(self, word):
        while word not in self.recv().split(b"\n"):  # signs of life may come before
            pass


def health(port):
    with socket.create_connection(("127.0.0.1", port), http_support.DEADLINE) as c:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert c.recv(100).startswith(b"HTTP/1.1 200")


def systemd_is_busy():
    """Nobody reads what the server says: it goes on all the same, and what must be heard is heard once there is room."""
    box = Box("busy", 200000)
    box.fill()
    served = http_support.Server("--backend", "null", "--null-rate", "20", env=box.env)
    for _ in range(4):  # over several signs of life
        health(served.port)
        time.sleep(0.3)
    box.wait_for(b"READY=1")
    body = http_support.chat(stream=True, max_tokens=900, ignore_eos=True)  # 45 seconds: the test leaves earlier
    with served.connect() as stream:
        stream.sendall(http_support.request("POST", "/v1/chat/completions", body))
        assert stream.recv(4096).startswith(b"HTTP/1.1 200")
        box.fill()
        served.process.send_signal(signal.SIGTERM)
        served.wait_line("stopping")
        box.wait_for(b"STOPPING=1")
        assert stream.recv(65536)
    assert served.process.wait(http_support.DEADLINE) == 0, served.process.returncode


def under_systemd():
    """READY=1 once the first token is possible, WATCHDOG=1 faster than asked for."""
    box = Box("notify", 2000000)
    served = http_support.Server("--max-num-seqs", "8", env=box.env, wait=False)
    box.wait_for(b"READY=1")
    health(served.port)
    times = [time.monotonic()]
    while len(times) < 3:
        assert box.recv() == b"WATCHDOG=1"
        times.append(time.monotonic())
    assert max(b - a for a, b in zip(times, times[1:])) < 2 * http_support.slow(), times
    return served, box


def stop(server, box):
    box.empty()  # nobody has read the signs of life for a while, and an idle server does not wait until its end is heard
    server.send_signal(signal.SIGTERM)
    box.wait_for(b"STOPPING=1")
    assert server.wait(http_support.DEADLINE) == 0, server.returncode


def arrival_times(connection):
    """When each event with text came, through whatever lies between."""
    connection.request("POST", "/v1/chat/completions", json.dumps(PROMPT), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    times = []
    for line in response:
        if line.startswith(b"data: {") and re.search(rb'"(reasoning_)?content":"[^"]', line):
            times.append(time.monotonic())
    return times


def behind_nginx(port):
    if not shutil.which("nginx") or not shutil.which("openssl"):
        return False
    tls, plain = free_port(), free_port()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=llm.example.org", "-days", "1", "-keyout", f"{FOLDER}/key.pem",
                    "-out", f"{FOLDER}/fullchain.pem"], check=True, capture_output=True,
                   timeout=http_support.DEADLINE)
    text = open(f"{SOURCE}/deploy/nginx.conf").read()
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("/etc/ssl/bathyc/", FOLDER + "/")
    text = re.sub(r"\n *listen \[::\][^\n]*", "", text).replace("listen 443 ", f"listen 127.0.0.1:{tls} ").replace("listen 80;", f"listen 127.0.0.1:{plain};")
    with open(f"{FOLDER}/nginx.conf", "w") as f:
        f.write(f"worker_processes 1; pid {FOLDER}/nginx.pid; error_log {FOLDER}/error.log; daemon off; master_process off; events {{}}\nhttp {{ access_log off; "
                + "".join(f"{t}_temp_path {FOLDER}/{t}; " for t in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")) + text + "}\n")
    checked = subprocess.run(["nginx", "-t", "-c", f"{FOLDER}/nginx.conf"], capture_output=True, text=True, timeout=http_support.DEADLINE)
    assert checked.returncode == 0, checked.stderr
    nginx = subprocess.Popen(["nginx", "-c", f"{FOLDER}/nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        trust = ssl.create_default_context(cafile=f"{FOLDER}/fullchain.pem")
        trust.check_hostname = False

        def connect():
            return http.client.HTTPSConnection("127.0.0.1", tls, timeout=http_support.DEADLINE, context=trust)

        def answers():
            try:
                c = connect()
                c.request("GET", "/health")
                return c.getresponse().status == 200
            except OSError:
                return False
        until(answers, "nginx")
        # Buffered, all events would come together at the end, every time. On a busy machine a reader that was put aside may see the
        # same once or twice.
        seen = []
        while not seen or (len(seen) < 10 and not (seen[-1][0] > 0.05 and seen[-1][1] < 0.6 * seen[-1][0])):
            times = arrival_times(connect())
            assert len(times) > 10
            seen.append((times[-1] - times[0], max(b - a for a, b in zip(times, times[1:]))))
        assert seen[-1][0] > 0.05 and seen[-1][1] < 0.6 * seen[-1][0], seen
        c = connect()
        c.request("GET", "/metrics")
        assert c.getresponse().status == 404
        c = connect()
        c.request("GET", "/")
        assert b"<title>bathyc</title>" in c.getresponse().read()
        c = http.client.HTTPConnection("127.0.0.1", plain, timeout=http_support.DEADLINE)
        c.request("GET", "/x", headers={"Host": "llm.example.org"})
        r = c.getresponse()
        assert r.status == 301 and r.headers["Location"] == "https://llm.example.org/x"
    finally:
        nginx.terminate()
        try:
            nginx.wait(60)
        except subprocess.TimeoutExpired:
            nginx.kill()
    return True


def main():
    systemd_is_busy()
    served, box = under_systemd()
    server = served.process
    try:
        nginx = behind_nginx(served.port)
        stop(server, box)
    finally:
        if server.poll() is None:
            server.kill()
    print("server as a unit" + (", behind nginx" if nginx else ""))


main()
