"""Many and difficult clients, with the null backend: slow readers, resets, idle connections, mixed requests; memory and descriptors
come back."""
import os
import random
import resource
import socket
import sys
import threading
import time

from http_support import DEADLINE, SANITIZED, Server, chat, equal, read_all, request, run, scaled

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
server = Server("--backend", "null", "--null-rate", "0", "--max-model-len", "1000000", "--max-queue", "100000",
                "--output-buffer-kib", "64", "--write-timeout", "4")
STREAM = {"model": "tiny", "prompt": "a", "stream": True}


def rss():
    with open(f"/proc/{server.process.pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def null_tokens_come_at_the_rate():
    s = Server("--backend", "null", "--null-rate", "100")
    began = time.monotonic()
    a = s.json("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 51})
    took = time.monotonic() - began
    equal((a["usage"]["completion_tokens"], took >= 0.5), (51, True), took)
    equal(a["choices"][0]["text"].startswith("The quick brown fox jumps over the lazy dog."), True)
    equal(s.stop(), 0)


def a_slow_reader_is_paused_and_then_left():
    """A stream of some 20 MB that nobody reads: its buffer stays bounded, and after --write-timeout the client is left."""
    before = rss()
    with server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(request("POST", "/v1/completions", {**STREAM, "max_tokens": 300000}))
        server.wait_metric("bathyc_http_slow_client_pauses_total", lambda v: v >= 1)
        other = server.json("POST", "/v1/chat/completions", chat(max_tokens=4))  # others go on
        equal(other["usage"]["completion_tokens"], 4)
        grown = rss() - before
        if grown > 30 << 20 and not SANITIZED:
            raise AssertionError(f"{grown >> 20} MiB for one client that does not read")
        server.wait_metric("bathyc_http_slow_client_cancels_total", lambda v: v >= 1)
    server.wait_metric("bathyc_http_open_streams", lambda v: v == 0)


def a_reader_with_pauses_gets_everything():
    with server.connect() as s:
        s.sendall(request("POST", "/v1/completions", {**STREAM, "max_tokens": 30000}, {"Connection": "close"}))
        got = b""
        for _ in range(5):
            got += s.recv(1000)
            time.sleep(0.3)
        got += read_all(s)
    equal((got.count(b"data: ") >= 30000, got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")), (True, True))


def idle_connections_are_cheap():
    n = scaled(10000, 100)
    n = min(n, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    before = rss()
    held = []
    for i in range(n):
        held.append(server.connect())
        if i % 2:
            held[-1].sendall(request("GET", "/version"))
            held[-1].recv(4096)
    server.wait_metric("bathyc_http_open_connections", lambda v: v >= n)
    time.sleep(1.5)  # idle connections give their buffers back
    each = (rss() - before) / n
    print(f"        {n} idle connections: {each:.0f} bytes each")
    if each > 20000 and not SANITIZED:
        raise AssertionError(f"{each:.0f} bytes for an idle connection; 10,000 must stay below 200 MB")
    for s in held:
        s.close()
    server.wait_metric("bathyc_http_open_connections", lambda v: v <= 1)


def resets_leave_nothing():
    fds = server.n_fds()
    slow = Server("--backend", "null", "--null-rate", "50", "--max-model-len", "1000000")
    before = slow.n_fds()
    for i in range(scaled(1000, 50)):
        s = slow.connect()
        s.sendall(request("POST", "/v1/completions", {**STREAM, "max_tokens": 1000}))
        s.recv(1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        s.close()
    slow.wait_metric("bathyc_http_open_streams", lambda v: v == 0)
    slow.wait_metric("bathyc_http_open_connections", lambda v: v <= 1)
    slow.wait_fds(before)
    equal(slow.stop(), 0)
    server.wait_fds(fds)


def mixed(rng, n):
    for _ in range(n):
        s = server.connect()
        kind = rng.randrange(6)
        try:
            if kind == 0:
                s.sendall(request("POST", "/v1/chat/completions", chat(max_tokens=rng.randrange(1, 20)), {"Connection": "close"}))
                equal(read_all(s).startswith(b"HTTP/1.1 200 "), True)
            elif kind == 1:
                s.sendall(request("POST", "/v1/completions", {**STREAM, "max_tokens": 50}, {"Connection": "close"}))
                equal(read_all(s).endswith(b"0\r\n\r\n"), True)
            elif kind == 2:
                s.sendall(rng.randbytes(rng.randrange(1, 200)))
            elif kind == 3:
                s.sendall(request("POST", "/v1/completions", {**STREAM, "max_tokens": 100000}))
                s.recv(100)
            elif kind == 4:
                s.sendall(request("POST", "/v1/responses", {"model": "tiny", "input": "x" * 500, "max_output_tokens": 5},
                                  {"Connection": "close"}))
                equal(read_all(s).startswith(b"HTTP/1.1 200 "), True)
            else:
                s.sendall(request("POST", "/v1/messages", rng.randbytes(100)))
                s.recv(1000)
        finally:
            s.close()


def mixed_requests_leave_memory_flat():
    """[O33, O44] good, broken, cancelled and stored ones; after warming up the resident size stays."""
    n = scaled(1500, 200)

    def round_of(seed):
        errors = []

        def work(k):
            try:
                mixed(random.Random(seed * 10 + k), n // 4)
            except Exception as e:
                errors.append(e)
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(DEADLINE)
        equal(errors, [])
        server.wait_metric("bathyc_http_open_streams", lambda v: v == 0)
        return rss()
    first = round_of(1)
    last = round_of(2)
    print(f"        {2 * n} requests: {first >> 10} KiB, then {last >> 10} KiB")
    stored = 4096 * n  # responses are kept on purpose, up to --response-store
    if last - first > stored + (8 << 20) and not SANITIZED:
        raise AssertionError(f"{(last - first) >> 10} KiB more after {n} requests")
    m = server.metrics()
    for name, value in m.items():
        if value < 0:
            raise AssertionError(f"{name} is {value}")


if __name__ == "__main__":
    code = run([null_tokens_come_at_the_rate, a_slow_reader_is_paused_and_then_left, a_reader_with_pauses_gets_everything,
                idle_connections_are_cheap, resets_leave_nothing, mixed_requests_leave_memory_flat])
    if server.stop() != 0:
        print("FAILED  the server's end")
        code = 1
    sys.exit(code)
