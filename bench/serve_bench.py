"""The server's own cost, beside a Python front end of the usual kind, in one run: `bathyc serve --backend null` and uvicorn with
FastAPI and pydantic, one core for the server and one for the load.

usage: serve_bench.py --program bathyc [--rounds 3] [--seconds 4] [--connections 1000]

The Python front end (needs uvicorn, fastapi, uvloop and httptools in this interpreter) reads the same requests, makes the same fixed
tokens by the same plan, and writes the same chunks; it does not tokenise, template or parse, so it has less to do. Load: wrk for
short requests (one token, not streamed, 64 connections kept open), `bathyc bench serve` for streams. Servers take turns; one JSON
object a line, medians of the rounds:
  short     requests a second, and the server's processor time for one
  stream    events a second that arrive when more is planned than the core can do, and processor time for one
  late      milliseconds by which events come after the plan, connection and first token included, while half of 150,000 events a
            second are planned over the connections (the Python front end: half of what it reached)
With --fifo both sides run under SCHED_FIFO (root), so that other programs of the machine do not count.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

APP = '''
import asyncio, json, os, time
from typing import Any
from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
RATE = float(os.environ["RATE"])
WORDS = ["The", " quick", " brown", " fox", " jump", "s", " over", " the", " lazy", " dog", ".", " "]
class Message(BaseModel):
    role: str
    content: str
class Request(BaseModel):
    model: str
    messages: list[Message]
    stream: bool = False
    max_tokens: int = 16
    stream_options: dict[str, Any] | None = None
app = FastAPI()
@app.get("/v1/models")
async def models():
    return {"object": "list", "data": [{"id": "null", "object": "model"}]}
@app.post("/v1/chat/completions")
async def chat(r: Request):
    usage = {"prompt_tokens": 32, "completion_tokens": r.max_tokens, "total_tokens": 32 + r.max_tokens}
    if not r.stream:
        text = "".join(WORDS[i % len(WORDS)] for i in range(r.max_tokens))
        return JSONResponse({"id": "chatcmpl-1", "object": "chat.completion", "created": int(time.time()), "model": r.model, "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}], "usage": usage})
    async def events():
        begin = time.monotonic()
        for i in range(r.max_tokens):
            if RATE and (wait := begin + i / RATE - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            yield "data: " + json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": int(begin), "model": r.model, "choices": [
                {"index": 0, "delta": {"content": WORDS[i % len(WORDS)]}, "logprobs": None, "finish_reason": None}]}) + "\\n\\n"
        yield "data: " + json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": {}, "finish_reason": "length"}]}) + "\\n\\n"
        yield "data: " + json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage}) + "\\n\\n"
        yield "data: [DONE]\\n\\n"
    return StreamingResponse(events(), media_type="text/event-stream")
'''
BODY = json.dumps({"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": "Hi"}],
                   "max_tokens": 1, "stream": False})
HALF = 75000

ap = argparse.ArgumentParser()
ap.add_argument("--program", default="build/bathyc")
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--seconds", type=float, default=4)
ap.add_argument("--connections", type=int, default=1000)
ap.add_argument("--fifo", action="store_true")
A = ap.parse_args()
FIFO = ["chrt", "-f", "50"] if A.fifo else []
folder = tempfile.TemporaryDirectory()
for name, text in (("app.py", APP), ("post.lua", f"wrk.method='POST'; wrk.headers['Content-Type']='application/json'; wrk.body='{BODY}'")):
    with open(f"{folder.name}/{name}", "w") as f:
        f.write(text)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One of the two, pinned to the first core; `rate` tokens a second of each stream, 0 = as fast as it can."""

    def __init__(self, which, rate):
        self.port = free_port()
        ours = [A.program, "serve", "--backend", "null", "--null-rate", str(rate), "--port", str(self.port), "--max-num-seqs", "4096", "--each-token"]
        theirs = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", folder.name, "--port", str(self.port), "--log-level", "error",
                  "--loop", "uvloop", "--http", "httptools", "--backlog", "4096"]
        self.process = subprocess.Popen(FIFO + ["taskset", "-c", "0"] + (ours if which == "bathyc" else theirs),
                                        env={**os.environ, "RATE": str(rate)}, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        time.sleep(0.3)

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)


def load(port, *flags):
    r = subprocess.run(FIFO + ["taskset", "-c", "1", A.program, "bench", "serve", "--port", str(port), "--input-len", "8", "--ignore-eos", "--json", *flags],
                       capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr
    d = json.loads(r.stdout)
    assert d["failed"] == 0, d
    return d


def short(which):
    with Server(which, 0) as s:
        before = s.cpu_s()
        out = subprocess.run(FIFO + ["taskset", "-c", "1", "wrk", "-t1", "-c64", f"-d{A.seconds:.0f}s", "-s", f"{folder.name}/post.lua",
                              f"http://127.0.0.1:{s.port}/v1/chat/completions"], capture_output=True, text=True, timeout=60).stdout
        assert "Non-2xx" not in out and "Requests/sec" in out, out
        n = int(out.split(" requests in")[0].split()[-1])
        return {"requests_s": float(out.split("Requests/sec:")[1].split()[0]), "cpu_us": (s.cpu_s() - before) / n * 1e6}


def stream(which):
    with Server(which, 1000) as s:  # a million a second from 1,000 connections: no core can
        before = s.cpu_s()
        d = load(s.port, "-n", str(A.connections), "-c", str(A.connections), "--output-len", "400" if which == "bathyc" else "100")
        return {"events_s": d["event_throughput"], "cpu_us": (s.cpu_s() - before) / d["events"] * 1e6}


def late(which, events_s):
    rate, length = events_s / A.connections, 200
    with Server(which, rate) as s:
        d = load(s.port, "-n", str(2 * A.connections), "-r", str(events_s / length), "--output-len", str(length), "--pace", str(rate))
        return {"planned_events_s": events_s, "p50_ms": d["late_ms"]["p50"], "p95_ms": d["late_ms"]["p95"], "p99_ms": d["late_ms"]["p99"],
                "sender_p99_ms": d["send_lag_ms"]["p99"]}


def medians(rows):
    return {k: round(statistics.median(r[k] for r in rows), 4) for k in rows[0]}


for part in (short, stream, late):
    rows = {"bathyc": [], "uvicorn": []}
    for _ in range(A.rounds):
        for which in rows:
            more = () if part is not late else (HALF if which == "bathyc" else reached / 2,)
            rows[which].append(part(which, *more))
    for which in rows:
        print(json.dumps({"part": part.__name__, "server": which, **medians(rows[which])}), flush=True)
    if part is stream:
        reached = medians(rows["uvicorn"])["events_s"]
