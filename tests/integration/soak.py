"""Mixed requests against `bathyc serve`: good, wrong, cancelled, slow, half. Afterwards nothing is left of them.

usage: soak.py PROGRAM REQUESTS [SERVE-FLAGS...]

Clients on a few threads take turns at the kinds below; another thread reads /metrics all the time: counters never fall, gauges stay in
their ranges. A first third warms the server up; what memory, descriptors, blocks and requests are after it, they are at the end.
"""
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time

import http_support

PROGRAM, REQUESTS, FLAGS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
THREADS = 8
# AddressSanitizer keeps what was freed; here only a little, or memory would never be flat.
SANITIZER = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8:thread_local_quarantine_size_kb=64"}
SLACK_BYTES = 24 << 20  # pages that the allocator keeps; a leak of 1 KiB a request shows in runs of 40,000
with open(PROGRAM, "rb") as f:
    if b"__tsan_init" in f.read():  # its shadow of each page and its records of threads and stacks grow by 12 to 26 MiB in 60 requests
        SLACK_BYTES *= 4


SERVER = None


def connect():
    s = socket.create_connection(("127.0.0.1", SERVER.port), http_support.DEADLINE)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def request(path, body, method="POST", close=True):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            f"{'Connection: close' if close else 'X-A: b'}\r\n\r\n").encode() + data


def read_all(s):
    parts = []
    while data := s.recv(65536):
        parts.append(data)
    return b"".join(parts)


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:80]
    return int(answer[9:12])


def ask(path, body, expected, **more):
    with connect() as s:
        s.sendall(request(path, body, **more))
        answer = read_all(s)
    assert status_of(answer) == expected, (expected, answer[:400])
    return answer


def chat(rng, **more):
    words = " ".join(rng.choice(("red", "blue", "green", "12", "seven")) for _ in range(rng.choice((2, 20, 150))))
    return {"model": "tiny", "messages": [{"role": "user", "content": words}], "max_tokens": rng.choice((1, 3, 8)), "ignore_eos": True,
            "thinking": {"type": "disabled"}, **more}


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def whole(rng):
    assert b'"finish_reason":"length"' in ask("/v1/chat/completions", chat(rng), 200)


def streamed(rng):
    answer = ask("/v1/chat/completions", chat(rng, stream=True), 200)
    assert b"[DONE]" in answer


def other_apis(rng):
    kind = rng.randrange(3)
    if kind == 0:
        ask("/v1/completions", {"model": "tiny", "prompt": ["one two", "three"], "max_tokens": 2, "ignore_eos": True}, 200)
    elif kind == 1:
        ask("/v1/messages", {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}, 200)
    else:
        ask("/v1/responses", {"model": "tiny", "input": "Hi", "max_output_tokens": 4, "store": bool(rng.randrange(2))}, 200)


def small(rng):
    path = rng.choice(("/health", "/v1/models", "/version", "/metrics", "/"))
    ask(path, b"", 200, method="GET")
    ask("/tokenize", {"model": "tiny", "prompt": "some words"}, 200)


def wrong(rng):
    path, body, expected = rng.choice((
        ("/v1/chat/completions", b'{"model": "tiny", "messages": [', 400), ("/v1/chat/completions", {"model": "tiny", "messages": []}, 400),
        ("/v1/chat/completions", chat(rng, temperature="hot"), 400), ("/v1/chat/completions", chat(rng) | {"model": "no such"}, 404),
        ("/v1/completions", {"model": "tiny", "prompt": ""}, 400), ("/nothing", {}, 404), ("/health", {}, 405),
        ("/v1/chat/completions", b"\xff\xfe", 400), ("/v1/chat/completions", chat(rng, max_tokens=-1), 400)))
    ask(path, body, expected)


def not_http(rng):
    with connect() as s:
        s.sendall(rng.choice((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/x HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                              b"GET /\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")))
        answer = read_all(s)
    assert not answer or 400 <= status_of(answer) < 600, answer[:80]


def leaves_early(rng):
    """Streams, reads a little, resets; or asks without streaming and goes."""
    stream = rng.randrange(2) == 0
    s = connect()
    s.sendall(request("/v1/chat/completions", chat(rng, stream=stream) | {"max_tokens": 500}))
    if stream:
        s.recv(2000)
    else:
        time.sleep(rng.random() * 0.02)
    reset(s)


def half(rng):
    """A part of a request, then nothing."""
    s = connect()
    whole_text = request("/v1/chat/completions", chat(rng))
    s.sendall(whole_text[:rng.randrange(1, len(whole_text))])
    if rng.randrange(2):
        reset(s)
    else:
        s.close()


def slow(rng):
    """A small receive window and pauses."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(http_support.DEADLINE)
    s.connect(("127.0.0.1", SERVER.port))
    with s:
        s.sendall(request("/v1/chat/completions", chat(rng, stream=True) | {"max_tokens": 30}))
        answer = b""
        while data := s.recv(500):
            answer += data
            if rng.random() < 0.1:
                time.sleep(0.005)
    assert b"[DONE]" in answer


def pipelined(rng):
    with connect() as s:
        s.sendall(request("/version", b"", "GET", False) + request("/v1/chat/completions", chat(rng), close=False) + request("/health", b"", "GET"))
        answer = read_all(s)
    assert answer.count(b"HTTP/1.1 200") == 3, answer[:300]


KINDS = [whole] * 4 + [streamed] * 4 + [other_apis] * 2 + [small] * 2 + [wrong] * 4 + [not_http, pipelined, slow] + [leaves_early] * 3 + [half] * 2


def metrics():
    text = ask("/metrics", b"", 200, method="GET").partition(b"\r\n\r\n")[2].decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    return types, {k: float(v) for k, v in re.findall(r"^([^#\s]\S*(?:\{.*\})?) (\S+)$", text, re.M)}


class Watcher(threading.Thread):
    """Scrapes until told to stop; problems are kept for the end."""

    def __init__(self):
        super().__init__(daemon=True)
        self.problems, self.before, self.n, self.over = [], {}, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.05):
            try:
                self.look()
            except Exception as e:  # noqa: BLE001 - told at the end
                self.problems.append(repr(e))

    def look(self):
        types, now = metrics()
        for name, v in now.items():
            family = re.sub(r"\{.*|_(bucket|sum|count)(\{.*|$)", "", name)
            rises = types.get(name.split("{")[0]) == "counter" or types.get(family) == "histogram"
            if v < 0 or v != v or (rises and v < self.before.get(name, 0)):
                self.problems.append(f"{name}: {v} after {self.before.get(name)}")
        if "bathyc_kv_blocks" not in now:
            pass  # the null backend has none
        elif now["bathyc_kv_usage_ratio"] > 1 or now["bathyc_kv_blocks_used"] > now["bathyc_kv_blocks"] or now["bathyc_state_slots_used"] > now["bathyc_state_slots"]:
            self.problems.append("a gauge is beyond its range")
        self.before = now
        self.n += 1


def run(n, seed):
    failures, left = [], [n]
    lock = threading.Lock()

    def client(number):
        rng = random.Random(seed * 1000 + number)
        while True:
            with lock:
                if left[0] <= 0 or len(failures) > 5:
                    return
                left[0] -= 1
            kind = rng.choice(KINDS)
            try:
                kind(rng)
            except Exception as e:  # noqa: BLE001 - told at the end
                failures.append(f"{kind.__name__}: {e!r}"[:500])

    threads = [threading.Thread(target=client, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, "\n".join(failures)


def settled(pid):
    """What is left once every request has ended: (resident bytes, descriptors, metrics)."""
    end = time.monotonic() + http_support.DEADLINE
    while True:
        _, m = metrics()
        busy = sum(m.get("bathyc_" + k, 0) for k in ("requests_running", "requests_waiting", "http_open_streams", "kv_blocks_used", "state_slots_used"))
        if busy == 0 and m["bathyc_http_open_connections"] <= 1 and m["bathyc_http_open_requests"] <= 1:
            break
        assert time.monotonic() < end, {k: v for k, v in m.items() if v and re.match(r"bathyc_(requests_(running|waiting)|http_open|kv_blocks_used|state_slots_used)", k)}
        time.sleep(0.05)
    with open(f"/proc/{pid}/status") as f:
        rss = int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) << 10
    fds = subprocess.run(["ls", f"/proc/{pid}/fd"], capture_output=True, text=True, check=True).stdout.count("\n")
    return rss, fds, m


def main():
    global SERVER
    SERVER = http_support.Server("--max-num-seqs", "16", "--response-store", "1M", *FLAGS, env=SANITIZER)
    server = SERVER.process
    try:
        watcher = Watcher()
        watcher.start()
        run(REQUESTS // 3, 1)
        rss0, fds0, m0 = settled(server.pid)
        start = time.monotonic()
        run(REQUESTS - REQUESTS // 3, 2)
        took = time.monotonic() - start
        rss1, fds1, m1 = settled(server.pid)
        watcher.over.set()
        watcher.join()
        assert not watcher.problems, watcher.problems[:5]
        assert watcher.n > 3
        assert fds1 <= fds0 + 1, f"{fds0} descriptors after the first third, {fds1} at the end"
        # The cache and its snapshots (kv, tensor) fill up to bounds of their own; all else belongs to requests.
        cached = sum(v - m0.get(k, 0) for k, v in m1.items() if k.startswith("bathyc_memory_bytes") and re.search("tensor|kv", k))
        assert rss1 - rss0 - max(cached, 0) < SLACK_BYTES, f"{rss0 >> 20} MiB after the first third, {rss1 >> 20} at the end, {cached / (1 << 20):.1f} of it in caches"
        grown = {k: (m0[k], v) for k, v in m1.items() if k.startswith("bathyc_memory_bytes") and v > m0.get(k, 0) + (SLACK_BYTES if re.search("tensor|kv", k) else 1 << 20)}
        assert not grown, grown
        assert "null" in FLAGS or m1["bathyc_http_client_disconnects_total"] > m0["bathyc_http_client_disconnects_total"]
        print(f"soak: ok, {REQUESTS} requests ({(REQUESTS - REQUESTS // 3) / took:.0f}/s), memory {rss0 >> 20} -> {rss1 >> 20} MiB, {cached / (1 << 20):.1f} of it in caches, "
              f"descriptors {fds0} -> {fds1}, {watcher.n} scrapes")
    finally:
        server.terminate()
        try:
            assert server.wait(http_support.DEADLINE) == 0, f"the server ended with {server.returncode}: {SERVER.lines}"
        except subprocess.TimeoutExpired:
            server.kill()
            raise


main()
