"""HTTP itself, at a running server: framing, limits, time, keys, CORS, readiness, the orderly end."""
import json
import signal
import socket
import sys
import threading
import time

from http_support import DEADLINE, SANITIZED, SLOW, Lag, Server, chat, equal, parse_one, parse_responses, read_all, request, run, scaled, slow

server = Server("--max-body", "200000")
GET = request("GET", "/version")


def statuses(data):
    return [r[0] for r in parse_responses(data)]


def pipelined_requests_are_answered_in_order():
    post = request("POST", "/detokenize", {"tokens": [300]})
    data = server.raw(GET * 3 + post + request("GET", "/nope") + request("GET", "/version", headers={"Connection": "close"}) + GET)
    equal(statuses(data), [200, 200, 200, 200, 404, 200])
    answer = request("POST", "/v1/chat/completions", chat(max_tokens=2))
    data = server.raw(answer + GET + answer + request("GET", "/health", headers={"Connection": "close"}))
    got = parse_responses(data)
    equal([r[0] for r in got], [200] * 4)
    equal([json.loads(r[2]).get("object") for r in got], ["chat.completion", None, "chat.completion", None])


def a_second_request_during_the_first_is_harmless():
    with server.connect() as s:
        s.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 40, "ignore_eos": True}))
        time.sleep(0.05)
        s.sendall(request("GET", "/version", headers={"Connection": "close"}))
        equal(statuses(read_all(s)), [200, 200])


def answers_that_nobody_reads_hold_back_requests():
    """Pipelined requests whose answers are not taken: they wait, in bounded memory, and all are answered once they are."""
    get = request("GET", "/")
    size = len(server.raw(request("GET", "/", headers={"Connection": "close"}))) - len("Connection: close\r\n")
    n = (scaled(96, 24) << 20) // size
    for shut in (False, True):
        before = server.rss()
        with server.connect() as s:
            s.settimeout(1)
            data = memoryview(get * n + (GET if shut else request("GET", "/version", headers={"Connection": "close"})))
            sent = 0
            try:
                while sent < len(data):
                    sent += s.send(data[sent:])
            except socket.timeout:
                pass
            time.sleep(0.5)
            grown = server.rss() - before
            if grown > 32 << 20 and not SANITIZED:  # AddressSanitizer keeps what is freed
                raise AssertionError(f"{grown} bytes more for {n} answers of {size} bytes")
            s.settimeout(DEADLINE)

            def rest():
                s.sendall(data[sent:])
                if shut:
                    s.shutdown(socket.SHUT_WR)
            sender = threading.Thread(target=rest)
            sender.start()
            got = 0
            piece = s.recv(1 << 20)
            while piece:
                got += len(piece)
                piece = s.recv(1 << 20)
            sender.join()
            equal(got // size, n, "answers")


def a_reset_while_nothing_is_read_is_seen():
    """The bytes ahead are full, so only the client's end is waited for; a reset must not make the loop spin."""
    idle = server.n_fds()
    with server.connect() as s:
        s.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1000, "ignore_eos": True}))
        s.settimeout(0.3)
        try:
            while True:
                s.send(GET * 1000)
        except socket.timeout:
            pass
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    began = time.monotonic()
    server.wait_fds(idle)
    if time.monotonic() - began > 2 * slow():
        raise AssertionError(f"seen after {time.monotonic() - began:.1f} s")


def a_request_may_come_byte_by_byte():
    body = json.dumps({"tokens": [300, 301]}).encode()
    data = (b"POST /detokenize HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" +
            b"".join(b"%x;x=y\r\n%s\r\n" % (len(p), p) for p in (body[:5], body[5:])) + b"0\r\nT: v\r\n\r\n")
    with server.connect() as s:
        for i in range(len(data)):
            s.sendall(data[i:i + 1])
        equal(parse_one(read_all(s))[0], 200)


def expect_continue_is_answered_first():
    body = b'{"tokens":[300]}'
    with server.connect() as s:
        s.sendall(b"POST /detokenize HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        equal(s.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
        s.sendall(body)
        equal(parse_one(read_all(s))[0], 200)
    # A refusal comes instead of it, and the body that the client then leaves out is not waited for.
    data = server.raw(b"POST /nope HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n")
    equal(parse_one(data)[0], 404)


def a_compressed_body_is_refused():
    body = b'{"tokens":[300]}'
    status, headers, answer = server.call("POST", "/detokenize", body, {"Content-Encoding": "gzip", "Content-Type": "application/json"})
    equal((status, headers["accept-encoding"]), (415, "identity"))
    assert "Content-Encoding" in json.loads(answer)["error"]["message"]
    equal(server.call("POST", "/detokenize", body, {"Content-Encoding": "Identity", "Content-Type": "application/json"})[0], 200)
    equal(server.call("GET", "/v1/models", headers={"Content-Encoding": "gzip"})[0], 200, "there is no body")
    equal(server.call("POST", "/detokenize", b"", {"Content-Encoding": "gzip"})[0], 400, "nor here")
    head = b"POST /detokenize HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n"
    for size in (b"Content-Length: 16\r\n\r\n" + body, b"Transfer-Encoding: chunked\r\n\r\n10\r\n" + body + b"\r\n0\r\n\r\n"):
        for second, want in (b"identity", 200), (b"gzip", 415):
            equal(parse_one(server.raw(head + b"Content-Encoding: identity\r\nContent-Encoding: " + second + b"\r\n" + size))[0], want, second)


BAD = [
    (b"GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    (b"POST /detokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 400),
    (b"POST /detokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", 413),
    (b"POST /detokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n", 413),
    (b"GET /" + b"a" * 20000, 414),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100000, 431),
    (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417),
    (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
    (b"\x00" * 100, 400),
]


def what_is_malformed_is_refused_and_ends_the_connection():
    for data, want in BAD:
        got = parse_responses(server.raw(data + GET if want in (400, 501) and data.endswith(b"\n") else data))
        equal([r[0] for r in got], [want], data[:80])
        equal(got[0][1].get("connection"), "close", data[:80])
        json.loads(got[0][2])["error"]["message"]


def versions_and_methods():
    equal(parse_one(server.raw(b"GET /version HTTP/1.0\r\n\r\n"))[1]["connection"], "close")
    got = parse_responses(server.raw(b"GET /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /version HTTP/1.0\r\n\r\n"))
    equal([r[1]["connection"] for r in got], ["keep-alive", "close"])
    got = parse_responses(server.raw(request("HEAD", "/v1/models", headers={"Connection": "close"})), heads=(0,))
    equal((got[0][0], int(got[0][1]["content-length"]) > 0, got[0][2]), (200, True, b""))
    status, headers, _ = server.call("PUT", "/v1/models")
    equal((status, headers["allow"]), (405, "GET, HEAD, OPTIONS"))
    for path, allow in (("/v1/files", "POST, GET, HEAD, OPTIONS"), ("/v1/files/x", "GET, HEAD, DELETE, OPTIONS"), ("/v1/messages", "POST, OPTIONS"),
                        ("/v1/responses/input_tokens", "POST, OPTIONS"), ("/", "GET, HEAD, OPTIONS")):
        status, headers, _ = server.call("OPTIONS", path)
        equal((status, headers["allow"]), (204, allow), path)
    equal(server.call("GET", "http://elsewhere/version?x=y")[0], 200)
    equal(server.call("GET", "/%76ersion")[0], 200)
    equal(server.call("GET", "/version%00")[0], 400)
    equal(server.call("GET", "/version%zz")[0], 400)
    # A stream for a client of HTTP/1.0 has no chunks and ends with the connection.
    data = server.raw(request("POST", "/v1/chat/completions", chat(max_tokens=2, stream=True), version="1.0"))
    status, headers, body = parse_one(data)
    equal((status, "transfer-encoding" in headers, body.endswith(b"data: [DONE]\n\n")), (200, False, True))


def closed_within(hasty, data, seconds):
    """Status of the answer to unfinished data (None: just closed), and that the end came in time."""
    with hasty.connect() as s:
        s.sendall(data)
        began = time.monotonic()
        got = read_all(s)
        took = time.monotonic() - began
    if took > seconds:
        raise AssertionError(f"{took:.1f} s for {data[:40]!r}")
    return parse_one(got)[0] if got else None


def slow_clients_are_ended():
    limit = 15 * slow()
    hasty = Server("--idle-timeout", "1", "--header-timeout", "1", "--read-timeout", "1")
    equal(closed_within(hasty, b"", limit), None, "no request")
    equal(closed_within(hasty, b"GET / HT", limit), 408, "half a head")
    equal(closed_within(hasty, b"POST /detokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{", limit), 408, "half a body")
    with hasty.connect() as s:  # a byte now and then does not help
        began = time.monotonic()
        try:
            for c in b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 1000:
                s.sendall(bytes([c]))
                time.sleep(0.05)
        except OSError:
            pass
        if time.monotonic() - began > limit:
            raise AssertionError("a dripping head was read to its end")
    hasty.stop()


def clients_that_break_off_leave_nothing():
    before = server.n_fds()
    for i in range(scaled(200, 60)):
        s = server.connect()
        s.sendall([b"GET / HT", b"POST /detokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{", GET][i % 3])
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset
        s.close()
    server.wait_metric("bathyc_http_open_connections", lambda v: v <= 1)
    server.wait_fds(before)


def bodies_are_counted_once():
    """Requests under way hold their bodies: as many as fit into the bound of 32 full ones are taken, and given back at the end."""
    s = Server("--backend", "null", "--null-rate", "5", "--max-body", "200000")
    body = {"model": "tiny", "prompt": "a", "max_tokens": 900, "stream": True, "pad": "x" * 180000}
    for _ in range(2):
        held = []
        for _ in range(24):
            c = s.connect()
            held.append(c)
            c.sendall(request("POST", "/v1/completions", body))
            equal(c.recv(12), b"HTTP/1.1 200", f"request {len(held)}")
        for c in held:
            c.close()
        s.wait_metric("bathyc_http_open_requests", lambda v: v <= 1)
    one = {"model": "tiny", "max_output_tokens": 1, "pad": "x" * 150000}
    for i in range(scaled(150, 50)):  # and nothing is left of those that have ended, whatever their way
        path, more = [("/v1/completions", {"prompt": "a", "max_tokens": 1}), ("/v1/responses", {"input": "a"}), ("/v1/responses", {"input": "a", "background": True}),
                      ("/v1/responses", {"input": 7}), ("/v1/messages", {})][i % 5]
        equal(s.call("POST", path, {**one, **more})[0] in (200, 400), True, (i, path))
    s.stop()


def long_texts_do_not_hold_up_streams():
    """16 MB to be tokenized, and back: seconds of work, during which the stream of another client goes on. A client that leaves
    meanwhile costs nothing, and an end of the server meanwhile is orderly."""
    s = Server("--backend", "null", "--null-rate", "600", "--max-model-len", "100000")
    text = "".join(f" w{i}x" for i in range(1000)) * scaled(2800, 700)
    ids = [300] * scaled(3000000, 750000)
    jobs = [("/tokenize", {"prompt": text}), ("/v1/messages/count_tokens", {"model": "tiny", "messages": [{"role": "user", "content": text}]}),
            ("/detokenize", {"tokens": ids})]
    jobs = [request("POST", path, body, {"Connection": "close"}) for path, body in jobs]

    def largest_gap(data):
        gaps, errors, stop = [], [], threading.Event()

        def watch():
            try:
                with s.connect() as c:
                    c.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 90000, "stream": True}))
                    equal(c.recv(65536)[:13], b"HTTP/1.1 200 ")
                    last = time.monotonic()
                    while not stop.is_set():
                        equal(c.recv(65536) != b"", True, "the stream has ended")
                        gaps.append(time.monotonic() - last)
                        last = time.monotonic()
            except Exception as e:
                errors.append(e)
        t = threading.Thread(target=watch)
        t.start()
        with s.connect() as c, Lag() as lag:
            c.sendall(data)
            head = c.recv(65536)  # the rest is not read: a reader that joins megabytes would hold up the watcher
            began = time.monotonic()
        stop.set()
        t.join(DEADLINE)
        equal(head[:13], b"HTTP/1.1 200 ", began)
        equal((errors, t.is_alive(), len(gaps) > 10), ([], False, True), len(gaps))
        return max(gaps), lag.most
    for data in jobs:
        seen = [largest_gap(data)]
        while seen[-1][0] > 0.3 * SLOW + 4 * seen[-1][1] and len(seen) < 4:  # others may use this machine, too
            seen.append(largest_gap(data))
        equal(seen[-1][0] <= 0.3 * SLOW + 4 * seen[-1][1], True, seen)
    held = [s.connect() for _ in range(3)]
    for c, data in zip(held, jobs):
        c.sendall(data)
    for c in held:
        c.close()
    s.wait_metric("bathyc_http_open_requests", lambda v: v <= 1)
    equal(s.json("POST", "/tokenize", {"prompt": "Hi"})["count"] > 0, True)
    last = s.connect()
    last.sendall(jobs[1])
    time.sleep(0.2)
    s.process.send_signal(signal.SIGTERM)
    s.process.send_signal(signal.SIGTERM)
    equal(s.process.wait(DEADLINE), 0)


def request_ids():
    equal(server.call("GET", "/version", headers={"X-Request-Id": "mine-7"})[1]["x-request-id"], "mine-7")
    a, b = (server.call("GET", "/version", headers={"X-Request-Id": x})[1]["x-request-id"] for x in ("a b", "x" * 500))
    equal((a.startswith("req_"), b.startswith("req_"), a != b), (True, True, True))


def keys_and_origins():
    import tempfile
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# two keys\nfrom-file\n\n  second \n")
        f.flush()
        s = Server("--api-key", "given", "--api-key-file", f.name, "--cors-origin", "https://page.example")
    for headers, want in [({}, 401), ({"Authorization": "Bearer given"}, 200), ({"Authorization": "bearer from-file"}, 200),
                          ({"x-api-key": "second"}, 200), ({"Authorization": "Bearer givem"}, 401), ({"Authorization": "given"}, 401),
                          ({"Authorization": "Bearer "}, 401), ({"x-api-key": ""}, 401), ({"x-api-key": "given "}, 200),
                          ({"x-api-key": "# two keys"}, 401)]:
        equal(s.call("GET", "/v1/models", headers=headers)[0], want, headers)
        equal(s.call("POST", "/tokenize", {"prompt": "a"}, headers=headers)[0], want, headers)
    for path in ("/health", "/ready", "/version", "/metrics", "/"):
        equal(s.call("GET", path)[0], 200, path)
    equal(s.call("POST", "/v1/chat/completions", b"x" * 100000)[0], 401, "the body of a refused request is read")
    status, headers, body = s.call("POST", "/v1/messages", chat())
    equal((status, json.loads(body)["error"]["type"], json.loads(body)["type"]), (401, "authentication_error", "error"))
    origin = {"Origin": "https://page.example"}
    status, headers, _ = s.call("OPTIONS", "/v1/models", headers={**origin, "Access-Control-Request-Method": "POST",
                                                                  "Access-Control-Request-Headers": "authorization,x-thing"})
    equal((status, headers["access-control-allow-origin"], headers["access-control-allow-headers"]),
          (204, "https://page.example", "authorization,x-thing"))
    equal(s.call("GET", "/version", headers=origin)[1]["access-control-allow-origin"], "https://page.example")
    equal("access-control-allow-origin" in s.call("GET", "/version", headers={"Origin": "https://other.example"})[1], False)
    equal("access-control-allow-origin" in server.call("GET", "/version", headers=origin)[1], False)
    s.stop()


def not_ready_is_503_with_retry_after():
    """[O43] From the first moment the port is open: 503 until the first token is possible, then 200, never anything else."""
    s = Server(wait=False)
    seen = []
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        status, headers, _ = s.call("GET", "/health")
        answer = s.call("POST", "/v1/chat/completions", chat(max_tokens=1))
        models = s.call("GET", "/v1/models")[0]
        seen.append((status, models, answer[0]))
        if status == 503 and "retry-after" not in headers:
            raise AssertionError("no Retry-After")
        if answer[0] == 503 and "retry-after" not in answer[1]:
            raise AssertionError("no Retry-After")
        if status == 200:
            break
        time.sleep(0.01)
    equal(seen[-1][0], 200)
    for health, models, answer in seen[:-1]:
        equal((health in (200, 503), models in (200, 503), answer in (200, 503)), (True, True, True), seen)
    if seen[0][0] != 503:
        print(f"        (the model was loaded before the first look: {seen})")
    equal(s.stop(), 0)


def a_signal_while_loading_is_an_orderly_end():
    for wait in (0, 0, 0.01, 0.03, 0.1, 0.2):
        s = Server(wait=False)
        time.sleep(wait)
        began = time.monotonic()
        equal(s.stop(), 0, wait)
        if time.monotonic() - began > 15 * slow():
            raise AssertionError(f"{time.monotonic() - began:.1f} s")


def the_end_is_orderly():
    s = Server()
    body = {"model": "tiny", "prompt": "a", "max_tokens": 300, "ignore_eos": True, "stream": True}
    stream = s.connect()
    stream.sendall(request("POST", "/v1/completions", body))
    first = stream.recv(65536)
    idle = s.connect()
    keep = s.connect()
    keep.sendall(request("GET", "/version"))
    keep.recv(65536)
    s.process.send_signal(signal.SIGTERM)
    s.wait_line("stopping")
    equal(idle.recv(10), b"", "an idle connection is closed")
    equal(keep.recv(10), b"", "a kept connection is closed")
    rest = read_all(stream)
    equal((first + rest).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), True, "the stream goes on to its end")
    equal(s.process.wait(DEADLINE), 0)
    # A second signal does not wait.
    s = Server("--backend", "null", "--null-rate", "1", "--drain-timeout", "600")
    stream = s.connect()
    stream.sendall(request("POST", "/v1/completions", {**body, "max_tokens": 900}))
    stream.recv(65536)
    s.process.send_signal(signal.SIGTERM)
    s.wait_line("stopping")
    time.sleep(0.5)
    equal(s.process.poll(), None, "the stream is let run")
    s.process.send_signal(signal.SIGINT)
    equal(s.process.wait(15 * slow()), 0)


def usage_errors():
    import subprocess
    from http_support import PROGRAM
    for flags in (["--port", "70000"], ["--prot", "1"], ["--host", "no.such.host.invalid", "--port", "0"], ["--max-body", "1T"],
                  ["--api-key-file", "/dev/null"], ["-m", "/nowhere", "--port", "0"], ["--api-key", ""], ["--cors-origin", "page.example", "--port", "0"],
                  *(["--cors-origin", o, "--port", "0"] for o in ("https://page.example/", "https://Page.example", "HTTPS://page.example",
                                                                  "https://page.example:443", "http://page.example:80", "http://[::1]:80",
                                                                  "http://page.example:", "http://page.example:0", "http://page.example:080"))):
        p = subprocess.run([PROGRAM, "serve", *flags], capture_output=True, timeout=DEADLINE)
        equal((p.returncode in (1, 2), len(p.stderr) > 0), (True, True), (flags, p.returncode, p.stderr))


def at_most_so_many_connections():
    s = Server("--max-connections", "8")
    held = [s.connect() for _ in range(8)]
    late = s.connect()
    late.settimeout(0.5)
    late.sendall(request("GET", "/version", headers={"Connection": "close"}))
    try:
        equal(late.recv(10), b"never", "the ninth waits")
    except socket.timeout:
        pass
    held.pop().close()
    late.settimeout(DEADLINE)
    equal(parse_one(read_all(late))[0], 200)
    s.stop()


if __name__ == "__main__":
    sys.exit(run([pipelined_requests_are_answered_in_order, a_second_request_during_the_first_is_harmless, a_request_may_come_byte_by_byte,
                  answers_that_nobody_reads_hold_back_requests, a_reset_while_nothing_is_read_is_seen,
                  expect_continue_is_answered_first, a_compressed_body_is_refused, what_is_malformed_is_refused_and_ends_the_connection, versions_and_methods,
                  clients_that_break_off_leave_nothing, slow_clients_are_ended, bodies_are_counted_once, long_texts_do_not_hold_up_streams,
                  request_ids, keys_and_origins,
                  not_ready_is_503_with_retry_after, a_signal_while_loading_is_an_orderly_end, at_most_so_many_connections, the_end_is_orderly, usage_errors]))
