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
PROMPT = {"model": "tiny", "stream": True, "max_tokens": 300, "ignore_eos": True, "messages": [{"role": "user", "content": "Hello"}]}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.05)


def under_systemd():
    """READY=1 once the first token is possible, WATCHDOG=1 faster than asked for. Returns the process and what it has said."""
    path = f"{FOLDER}/notify"
    box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    box.bind(path)
    box.settimeout(120)
    served = http_support.Server("--max-num-seqs", "8", env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000000"}, wait=False)
    while b"READY=1" not in box.recv(4096).split(b"\n"):  # signs of life may come before
        pass
    with socket.create_connection(("127.0.0.1", served.port), 10) as c:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert c.recv(100).startswith(b"HTTP/1.1 200")
    times = [time.monotonic()]
    while len(times) < 3:
        assert box.recv(4096) == b"WATCHDOG=1"
        times.append(time.monotonic())
    assert max(b - a for a, b in zip(times, times[1:])) < 2 * http_support.SLOW, times
    return served, box


def stop(server, box):
    server.send_signal(signal.SIGTERM)
    said = b""
    while b"STOPPING=1" not in said:
        said = box.recv(4096)
    assert server.wait(60) == 0, server.returncode


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
                    "-out", f"{FOLDER}/fullchain.pem"], check=True, capture_output=True, timeout=60)
    text = open(f"{SOURCE}/deploy/nginx.conf").read()
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("/etc/ssl/bathyc/", FOLDER + "/")
    text = re.sub(r"\n *listen \[::\][^\n]*", "", text).replace("listen 443 ", f"listen 127.0.0.1:{tls} ").replace("listen 80;", f"listen 127.0.0.1:{plain};")
    with open(f"{FOLDER}/nginx.conf", "w") as f:
        f.write(f"worker_processes 1; pid {FOLDER}/nginx.pid; error_log {FOLDER}/error.log; daemon off; master_process off; events {{}}\nhttp {{ access_log off; "
                + "".join(f"{t}_temp_path {FOLDER}/{t}; " for t in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")) + text + "}\n")
    checked = subprocess.run(["nginx", "-t", "-c", f"{FOLDER}/nginx.conf"], capture_output=True, text=True, timeout=30)
    assert checked.returncode == 0, checked.stderr
    nginx = subprocess.Popen(["nginx", "-c", f"{FOLDER}/nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        trust = ssl.create_default_context(cafile=f"{FOLDER}/fullchain.pem")
        trust.check_hostname = False

        def connect():
            return http.client.HTTPSConnection("127.0.0.1", tls, timeout=60, context=trust)

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
        c = http.client.HTTPConnection("127.0.0.1", plain, timeout=10)
        c.request("GET", "/x", headers={"Host": "llm.example.org"})
        r = c.getresponse()
        assert r.status == 301 and r.headers["Location"] == "https://llm.example.org/x"
    finally:
        nginx.terminate()
        try:
            nginx.wait(10)
        except subprocess.TimeoutExpired:
            nginx.kill()
    return True


def main():
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
