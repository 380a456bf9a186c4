"""`bathyc bench serve` against a server whose delays and faults are known, and against `bathyc serve` where the program has it.

usage: bench_serve.py PROGRAM SOURCE
"""
import http.server
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import http_support

PROGRAM, SOURCE = sys.argv[1], Path(sys.argv[2])
FIRST, GAP, TOKENS = 0.06, 0.015, 8
PATIENCE = (1.5 if http_support.SANITIZED else 0.5) * http_support.pace()  # a good answer comes in less, whatever the machine
LONG = "a reason of many words " * 14 + "and its end"


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()
    bodies, arrivals, connections, behaviour = [], [], set(), "good"
    open_now = most_open = 0

    def log_message(self, *args):
        pass

    def plain(self, status, body, extra=()):
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(data))), *extra):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.plain(200, {"data": [{"id": "the-model"}]}) if self.path == "/some/v1/models" else self.plain(404, {})

    def chunk(self, text):
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()

    def event(self, value):
        self.chunk("data: " + (value if isinstance(value, str) else json.dumps(value)) + "\n\n")

    def do_POST(self):
        with self.lock:
            self.arrivals.append(time.monotonic())
            self.connections.add(self.client_address)
            Server.open_now += 1
            Server.most_open = max(Server.most_open, Server.open_now)
        try:
            self.answer()
        except OSError:
            self.close_connection = True
        finally:
            with self.lock:
                Server.open_now -= 1

    def usage(self, body):
        return {"prompt_tokens": 100, "completion_tokens": TOKENS, "prompt_tokens_details": {"cached_tokens": 30}}

    def answer(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            self.bodies.append((self.path, body, dict(self.headers)))
            turn = len(self.bodies) - 1
        kind = self.behaviour if isinstance(self.behaviour, str) else self.behaviour[turn % len(self.behaviour)]
        if kind == "busy":
            return self.plain(429, {"error": {"message": "queue full: " + LONG}}, [("Retry-After", "1")])
        if kind == "page":
            return self.plain(200, b"<html>")
        if kind == "away":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
            self.close_connection = True
            return None
        if kind == "leave":  # keeps the connection, as it says, for less long than the client thinks
            self.close_connection = True
            return self.plain(200, {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": self.usage(body)})
        if kind == "hang":
            return time.sleep(3 * PATIENCE)
        if not body.get("stream"):
            time.sleep(FIRST)
            return self.plain(200, {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": self.usage(body)})
        chat = "chat/" in self.path
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.chunk(": wait\n\n")
        if chat:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        time.sleep(FIRST)
        for i in range(TOKENS):
            if i:
                time.sleep(GAP)
            if kind == "half" and i == 3:
                self.chunk("data: [DONE]\n\n")
                return self.chunk("")
            if kind == "fault" and i == 3:
                self.event({"error": {"message": "bad number"}})
                return self.chunk("")
            self.event({"choices": [{"index": 0, "delta": {"content": " x"} if i % 2 else {"reasoning_content": "y"}}]} if chat
                       else {"choices": [{"index": 0, "text": " x", "finish_reason": None}]})
        self.event({"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "length"}]})
        self.event({"choices": [], "usage": self.usage(body)})
        self.event("[DONE]")
        return self.chunk("")


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass


server = Quiet(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
URL = f"http://127.0.0.1:{server.server_port}/some"


def bench(*flags, code=0, behaviour="good", url=URL):
    Server.bodies, Server.arrivals, Server.behaviour = [], [], behaviour
    Server.connections, Server.most_open = set(), 0
    r = subprocess.run([PROGRAM, "bench", "serve", "--base-url", url, *flags], capture_output=True, text=True, timeout=http_support.DEADLINE)
    assert r.returncode == code, (r.returncode, r.stdout, r.stderr)
    return r


def report(*flags, **more):
    r = bench("--json", "--save-detailed", "--percentiles", "50,99", *flags, **more)
    check = subprocess.run([sys.executable, SOURCE / "tests/integration/check_schema.py", SOURCE / "tests/integration/bench_serve.schema.json"],
                           input=r.stdout, capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
    return json.loads(r.stdout)


def near(value, seconds, slack=0.15):
    """Milliseconds: not below what the server waits, and not far above (this machine is shared)."""
    assert seconds * 1000 - 2 <= value <= (seconds + slack * http_support.slow()) * 1000, (value, seconds)


def percentile(values, p):
    values = sorted(values)
    at = p / 100 * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def times_are_those_of_the_server():
    d = report("-n", "24", "-c", "4", "--input-len", "20", "--output-len", "9", "--ignore-eos", "--temperature", "0.5", "--extra-body", '{"top_k": 3}',
               "--api-key", "k1", "--header", "X-A: b")
    assert d["completed"] == 24 and d["failed"] == 0 and d["errors"] == {} and d["first_error"] is None
    assert d["input_tokens"] == 2400 and d["cached_tokens"] == 720 and d["output_tokens"] == 24 * TOKENS == d["events"]
    near(d["ttft_ms"]["p50"], FIRST)
    near(d["tpot_ms"]["p50"], GAP, 0.06)
    near(d["itl_ms"]["p50"], GAP, 0.06)
    assert d["itl_ms"]["n"] == 24 * (TOKENS - 1) and d["ttft_ms"]["n"] == 24
    near(d["e2el_ms"]["p50"], FIRST + GAP * (TOKENS - 1), 0.4)
    each = [r["e2el_ms"] for r in d["requests"]]
    for p in (50, 99):
        assert abs(percentile(each, p) - d["e2el_ms"][f"p{p}"]) < 1e-3
    assert abs(statistics.mean(each) - d["e2el_ms"]["mean"]) < 1e-3 and abs(statistics.pstdev(each) - d["e2el_ms"]["std"]) < 1e-3
    assert abs(d["request_throughput"] * d["duration_s"] - 24) < 0.01
    assert Server.most_open == 4 and len(Server.connections) <= 4, (Server.most_open, Server.connections)
    path, body, headers = Server.bodies[0]
    assert path == "/some/v1/chat/completions" and body["model"] == "the-model" and body["max_tokens"] == 9
    assert body["ignore_eos"] is True and body["temperature"] == 0.5 and body["top_k"] == 3 and body["stream"] is True
    assert headers["Authorization"] == "Bearer k1" and headers["X-A"] == "b"
    prompts = [b["messages"][0]["content"] for _, b, _ in Server.bodies]
    assert len(set(prompts)) == 24 and all(len(p.split()) == 20 for p in prompts)
    again = report("-n", "3", "--input-len", "20")
    assert again["completed"] == 3 and {b["messages"][0]["content"] for _, b, _ in Server.bodies} <= set(prompts)


def lateness_is_against_the_plan():
    d = report("-n", "8", "-c", "4", "--pace", str(1 / GAP))
    assert d["late_ms"]["n"] == 8 * TOKENS
    near(d["late_ms"]["p50"], FIRST)  # the plan knows nothing of the wait before the first token
    half = report("-n", "4", "--pace", str(2 / GAP))  # of a server that is half as fast: token i comes i/2 gaps late
    near(half["late_ms"]["p50"], FIRST + GAP / 2 * (TOKENS - 1) / 2)
    assert "late_ms" not in report("-n", "2")


def prefixes_are_shared():
    report("-n", "9", "--input-len", "5", "--prefix-len", "12", "--num-prefixes", "3", "--range-ratio", "0.5", "--endpoint", "/v1/completions")
    prompts = [b["prompt"].split() for _, b, _ in Server.bodies]
    heads = {tuple(p[:12]) for p in prompts}
    assert len(heads) == 3 and len({tuple(p) for p in prompts}) == 9
    assert all(12 + 2 <= len(p) <= 12 + 8 for p in prompts) and len({len(p) for p in prompts}) > 1


def faults_are_told_apart():
    kinds = ["good", "busy", "page", "away", "half", "fault"]
    d = report("-n", "30", "-c", "3", "--timeout", "60", behaviour=kinds)
    assert d["completed"] == 5 and d["failed"] == 25, d
    assert d["errors"] == {"status_429": 5, "protocol": 5, "closed": 5, "incomplete": 5, "reported": 5}, d["errors"]
    assert d["first_error"]
    d = report("-n", "4", "--timeout", str(PATIENCE), behaviour=["good", "hang"])
    assert d["errors"] == {"timeout": 2}, d["errors"]
    d = report("-n", "20", "-c", "1", "--no-stream", behaviour="leave")
    assert d["completed"] == 20 and len(Server.connections) == 20, d["errors"]
    r = bench("-n", "2", code=1, behaviour="busy")
    assert "queue full" in r.stderr and "status 429" in r.stdout and "queue full" not in r.stdout  # told once,
    assert LONG in r.stderr  # and whole
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    r = bench("-n", "2", "--model", "m", code=1, url=f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert "onnection refused" in r.stderr
    closed.close()


def arrivals_follow_the_rate():
    for burstiness, low, high in ((1, 0.7, 1.4), (1000, 0.01, 0.06)):
        d = report("-n", "60", "--request-rate", "60", "--burstiness", str(burstiness), "--no-stream", "--seed", "3")
        assert d["completed"] == 60 and d["ttft_ms"]["n"] == 0 and d["ttft_ms"]["p50"] is None
        # The plan is exact; when a request is sent depends on this machine too, but never before it is due.
        due = [r["due_s"] for r in d["requests"]]
        gaps = [b - a for a, b in zip(due, due[1:])]
        assert 0.7 < statistics.mean(gaps) * 60 < 1.4, statistics.mean(gaps)
        assert low <= statistics.pstdev(gaps) / statistics.mean(gaps) <= high, (burstiness, statistics.pstdev(gaps) / statistics.mean(gaps))
        assert all(r["sent_s"] >= r["due_s"] for r in d["requests"])
        assert sum(r["sent_s"] - r["due_s"] for r in d["requests"]) / 60 < 0.2 * http_support.slow()
        near(d["e2el_ms"]["p50"], FIRST)
        assert Server.most_open > 1


def limits_of_time_and_goals():
    slower = http_support.pace()
    d = report("-n", "100000", "--duration", str(0.7 * slower), "-c", "2", "--goodput", "ttft:60000,tpot:60000")
    assert 2 <= d["completed"] < 30 * slower and d["request_goodput"] == d["request_throughput"]
    d = report("-n", "4", "--goodput", "ttft:1")
    assert d["request_goodput"] == 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "set").write_text('{"prompt": "one", "output_len": 3}\n\n{"messages": [{"role": "user", "content": "two"}]}\n')
        out = Path(folder) / "out.json"
        r = bench("-n", "4", "--dataset-name", "custom", "--dataset-path", folder + "/set", "-o", str(out), "--num-warmups", "2")
        assert "time to first token" in r.stdout and json.loads(out.read_text())["completed"] == 4
        sent = sorted((b["messages"][0]["content"], b["max_tokens"]) for _, b, _ in Server.bodies)
        assert sent == [("one", 3)] * 3 + [("two", 64)] * 3, sent
        (Path(folder) / "bad").write_text('{"prompt": "one"}\n{"text": 1}\n')
        r = bench("-n", "4", "--dataset-name", "custom", "--dataset-path", folder + "/bad", code=1)
        assert "object 2: neither prompt nor messages" in r.stderr, r.stderr
    for flags in (["--request-rate", "fast"], ["--goodput", "ttft"], ["--percentiles", "50,101"], ["--header", "x"], ["--extra-body", "[1]"],
                  ["--endpoint", "v1"], ["--dataset-path", "x"], ["--nothing"], ["--base-url", "https://x"]):
        bench(*flags, code=2)


def an_interrupt_reports_what_is_done():
    Server.bodies, Server.behaviour = [], "good"
    p = subprocess.Popen([PROGRAM, "bench", "serve", "--base-url", URL, "-n", "100000", "-c", "2", "--json"], stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + http_support.DEADLINE
    while len(Server.bodies) < 6 and time.monotonic() < end:
        time.sleep(0.02)
    p.send_signal(signal.SIGINT)
    d = json.loads(p.communicate(timeout=http_support.DEADLINE)[0])
    assert d["interrupted"] and d["completed"] >= 3 and set(d["errors"]) <= {"interrupted"}, d


def with_our_server():
    if " serve " not in subprocess.run([PROGRAM, "help"], capture_output=True, text=True, timeout=http_support.DEADLINE).stdout:
        return False
    served = http_support.Server("--max-num-seqs", "8", "--max-model-len", "4096")
    serve, port = served.process, served.port
    try:
        for endpoint in ("/v1/chat/completions", "/v1/completions"):
            d = report("-n", "8", "-c", "4", "--input-len", "150", "--prefix-len", "150", "--output-len", "8", "--ignore-eos", "--endpoint", endpoint,
                       url=f"http://127.0.0.1:{port}")
            assert d["completed"] == 8 and d["failed"] == 0, d
            assert d["output_tokens"] == 64 and d["input_tokens"] > 8 * 300, d
            assert d["cached_tokens"] > 0, d
    finally:
        serve.terminate()
        try:
            serve.wait(http_support.DEADLINE)
        except subprocess.TimeoutExpired:
            serve.kill()
            raise
    return True


for test in (times_are_those_of_the_server, lateness_is_against_the_plan, prefixes_are_shared, faults_are_told_apart,
             arrivals_follow_the_rate, limits_of_time_and_goals, an_interrupt_reports_what_is_done):
    test()
print("bench_serve: ok" + (", with bathyc serve" if with_our_server() else ""))
