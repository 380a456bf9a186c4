"""The page of the server in a headless Chromium.

usage: page.py PROGRAM SOURCE [PICTURES]    exit code 77: no browser

A small server replays recorded streams (tests/golden/data/page), and misbehaves on request: errors, cut streams, keys, slowness.
Then the conversation runs once more against `bathyc serve`, when the program has it. PICTURES: a folder for screenshots.
"""
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import http_support
from webdriver import Browser, have_browser

MODEL = "DeepSeek-V4.1-Flash"
TOOLS = [{"name": "get_weather", "description": "Get the weather of a city",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]
MARKDOWN = """# Title

A **bold** word, `code`, *slanted*, [a link](https://example.org/) and <b>no markup</b>.

1. one
2. two

```c
int x = 1 < 2;
```

| a | b |
| --- | --- |
| 1 | 2 |
"""


class Replay(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    source = program = None
    key = None
    ready = True
    bodies = []
    left = threading.Event()
    tokens = 0

    def log_message(self, *args):
        pass

    def answer(self, status, body, kind="application/json", extra=()):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(data))), *extra):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def allowed(self):
        if self.key and self.headers.get("Authorization") != "Bearer " + self.key:
            self.answer(401, {"error": {"message": "Wrong API key.", "type": "authentication_error"}})
            return False
        return True

    def do_GET(self):
        if self.path == "/":
            self.answer(200, (self.source / "web/index.html").read_text(), "text/html; charset=utf-8")
        elif self.path == "/health":
            self.answer(200 if self.ready else 503, {"error": {"message": "the model is being loaded"}})
        elif self.path == "/v1/models" and self.allowed():
            self.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif self.path == "/metrics" and self.allowed():
            self.answer(200, self.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        elif not self.wfile.closed and self.path not in ("/v1/models", "/metrics"):
            self.answer(404, {"error": {"message": "no such path"}})

    def metrics(self):
        """The real text of the registry, with a few figures that move."""
        dump = subprocess.run([Path(self.program).parent / "tests/test_metrics", "--dump"], capture_output=True, text=True, timeout=120)
        Replay.tokens += 130
        moving = {"bathyc_engine_output_tokens_total": 9000 + Replay.tokens, "bathyc_engine_prompt_rows_total": 700 + Replay.tokens * 2,
                  "bathyc_requests_running": 3 + Replay.tokens // 130 % 4, "bathyc_kv_usage_ratio": 0.3 + Replay.tokens % 1700 / 4000}
        lines = dump.stdout.splitlines()
        for i, line in enumerate(lines):
            name = line.split(" ")[0]
            if name in moving:
                lines[i] = f"{name} {moving[name]}"
            elif re.match(r"bathyc_(time_to_first_token|inter_token)_seconds_(bucket|count)", name) and not line.endswith(" 0"):
                lines[i] = f"{name} {float(line.rsplit(' ', 1)[1]) + Replay.tokens}"
        return "\n".join(lines) + "\n"

    def chunk(self, data):
        self.wfile.write(f"{len(data.encode()):x}\r\n{data}\r\n".encode())
        self.wfile.flush()

    def stream(self, pieces, pause=0.004, end=True):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.chunk(": keep-alive\n\n")
            for p in pieces:
                self.chunk(f"data: {p.strip()}\n\n")
                time.sleep(pause)
            if end:
                self.chunk("data: [DONE]\n\n")
            self.chunk("")
        except OSError:
            Replay.left.set()
            self.close_connection = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Replay.bodies.append(body)
        if not self.allowed():
            return
        last = body["messages"][-1]
        said = last["content"]

        def delta(text, **more):
            return json.dumps({"model": MODEL, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, **more}]})

        def recorded(name):
            return (self.source / "tests/golden/data/page" / name).read_text().splitlines()

        if last["role"] == "tool":
            self.stream(recorded("result.jsonl"))
        elif said == "refuse":
            self.answer(429, {"error": {"message": "The queue is full.", "type": "rate_limit"}}, extra=[("Retry-After", "7")])
        elif said == "proxy":
            self.answer(502, "Bad gateway", "text/html")
        elif said == "cut":
            self.stream([delta("half an ans")], end=False)
        elif said == "broken":
            self.stream([delta("so far"), json.dumps({"error": {"message": "The engine found a bad number."}})])
        elif said == "slow":
            self.stream((delta(f"word{i} ") for i in range(2000)), pause=0.02)
        elif said == "markdown":
            self.stream([delta(MARKDOWN[i:i + 3]) for i in range(0, len(MARKDOWN), 3)] + [delta("", finish_reason="stop")])
        elif body.get("tools"):
            self.stream(recorded("call.jsonl"))
        else:
            self.stream(recorded("sum.jsonl"))


def say(b, text):
    b.run("document.getElementById('input').value = arguments[0]", text)
    b.type("#input", "\ue007")


IDLE = "document.getElementById('stop').hidden && document.querySelectorAll('.msg.assistant').length > 0"
LAST = "[...document.querySelectorAll('.msg.assistant')].at(-1)"


def last(b, css):
    return b.run(f"return {LAST}.querySelector(arguments[0])?.innerText ?? null", css)


def conversation(b, url, picture):
    """What works with any server: streaming, reasoning, figures, tool calls over two requests, keeping."""
    b.open(url)
    b.wait("document.getElementById('dot').dataset.is === 'ready'")
    assert b.text("#state-text") == MODEL, b.text("#state-text")
    picture("empty")
    b.run("settings.temperature = 0; settings.think = 'high'; write('bathyc.settings', settings); loadSettings()")
    say(b, "What is 17 plus 25?")
    b.wait("document.querySelector('.msg.user .body').innerText === 'What is 17 plus 25?'")
    b.wait(IDLE)
    assert last(b, ".body") == "17 + 25 = 42.", last(b, ".body")
    assert last(b, "summary").startswith("Thought for"), last(b, "summary")
    assert b.run(f"return {LAST}.querySelector('details').open") is False
    b.run(f"{LAST}.querySelector('summary').click()")
    assert "carry" in last(b, "details div")
    assert re.search(r"\d+ \+ \d+ tokens", last(b, ".figures")) and "tokens/s" in last(b, ".figures"), last(b, ".figures")
    assert b.run(f"return {LAST}.querySelector('.error').hidden")
    picture("answer")

    b.keys("alt", "n")
    b.wait("document.getElementById('empty') !== null")
    b.run("settings['tools-json'] = JSON.stringify(arguments[0]); loadSettings()", TOOLS)
    say(b, "What is the weather in Paris?")
    b.wait(IDLE + " && document.querySelector('.call form') !== null")
    assert last(b, ".call .name").startswith("get_weather")
    assert json.loads(last(b, ".call pre")) == {"city": "Paris"}
    picture("call")
    say(b, "and now?")  # refused: the call has no result yet
    assert "waits for its result" in b.text("#notice")
    b.run("stopEditing()")
    b.type(".call textarea", '{"temperature": 21, "sky": "clear"}')
    b.click(".call form button")
    b.wait(IDLE + " && document.querySelectorAll('.msg.assistant').length === 2")
    assert "21" in last(b, ".body"), last(b, ".body")
    picture("result")
    b.run("settings['tools-json'] = ''; write('bathyc.settings', settings); loadSettings()")

    # Both conversations survive a reload, the newest is open, the other can be opened, removed and brought back.
    b.open(url)
    b.wait("document.querySelectorAll('.msg.assistant').length === 2")
    assert "21" in last(b, ".body")
    b.run("if (document.getElementById('side').hidden) toggleSide()")
    assert b.run("return [...document.querySelectorAll('#list li button:first-child')].map(n => n.innerText)") == [
        "What is the weather in Paris?", "What is 17 plus 25?"]
    picture("list")
    b.click("#list li:nth-child(2) button")
    b.wait("document.querySelectorAll('.msg.assistant').length === 1")
    assert last(b, ".body") == "17 + 25 = 42."
    b.run("document.querySelector('#list li:nth-child(2) button:last-child').click()")
    assert "Deleted" in b.text("#notice")
    b.click("#notice button")
    assert b.run("return document.querySelectorAll('#list li').length") == 2
    b.run("toggleSide(false)")


def requests_of_the_page():
    """The body of the request behind the tool's result: history, reasoning, settings."""
    body = Replay.bodies[-1]
    roles = [m["role"] for m in body["messages"]]
    assert roles == ["user", "assistant", "tool"], roles
    assistant, tool = body["messages"][1:]
    assert "weather" in assistant["reasoning_content"]
    call = assistant["tool_calls"][0]
    assert call["function"]["name"] == "get_weather" and json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert tool["tool_call_id"] == call["id"] and json.loads(tool["content"])["temperature"] == 21
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}
    assert body["temperature"] == 0 and body["reasoning_effort"] == "high" and body["model"] == MODEL
    assert body["tools"][0]["function"]["name"] == "get_weather"
    assert not {"top_p", "seed", "stop", "max_tokens"} & set(body), body.keys()


def troubles(b, url, picture):
    b.open(url)
    b.keys("alt", "n")
    for what, expected in (("refuse", "The queue is full. (status 429, try again in 7 s)"), ("proxy", "Bad gateway (status 502)"),
                           ("cut", "The connection ended before the answer did."), ("broken", "The engine found a bad number.")):
        say(b, what)
        b.wait(IDLE + f" && !{LAST}.querySelector('.error').hidden")
        assert last(b, ".error") == expected, last(b, ".error")
    assert last(b, ".body") == "so far"
    picture("errors")

    # An error without text is not sent back as an answer; half an answer is.
    say(b, "again")
    b.wait(IDLE + f" && {LAST}.querySelector('.body').innerText === '17 + 25 = 42.'")
    sent = [(m["role"], m["content"]) for m in Replay.bodies[-1]["messages"]]
    assert ("assistant", "half an ans") in sent and ("assistant", "") not in sent, sent

    # Stop: by button and by key; the server sees its client leave, what came stays.
    for way in (lambda: b.click("#stop"), lambda: b.keys("escape")):
        Replay.left.clear()
        say(b, "slow")
        b.wait(f"{LAST}.querySelector('.body').innerText.includes('word3')")
        way()
        b.wait(IDLE)
        assert "stopped" in last(b, ".figures") and "word3" in last(b, ".body")
        assert Replay.left.wait(120), "the stopped stream went on"

    # Edit the first message: what follows is replaced.
    b.run("document.querySelector('.msg.user .foot button').click()")
    assert b.run("return document.getElementById('input').value") == "refuse"
    say(b, "markdown")
    b.wait(IDLE + f" && {LAST}.querySelector('table') !== null")
    assert b.run("return document.querySelectorAll('.msg').length") == 2
    shape = b.run(f"return [...{LAST}.querySelector('.body').children].map(n => n.tagName)")
    assert shape == ["H3", "P", "OL", "DIV", "TABLE"], shape
    assert last(b, ".body p") == "A bold word, code, slanted, a link and <b>no markup</b>."
    assert last(b, ".block pre") == "int x = 1 < 2;"
    assert b.run(f"return [...{LAST}.querySelectorAll('th, td')].map(n => n.innerText)") == ["a", "b", "1", "2"]
    picture("markdown")

    # A key: asked for, accepted, kept only when wanted.
    Replay.key = "s3cret"
    say(b, "more")
    b.wait(IDLE + f" && !{LAST}.querySelector('.error').hidden")
    assert "Wrong API key." in last(b, ".error") and b.run("return document.activeElement.id") == "key"
    b.type("#key", "s3cret\ue004")
    b.wait("document.getElementById('dot').dataset.is === 'ready'")
    b.keys("escape")
    b.run(f"[...{LAST}.querySelectorAll('.foot button')].at(-1).click()")
    b.wait(IDLE + f" && {LAST}.querySelector('.body').innerText === '17 + 25 = 42.'")
    assert b.run("return localStorage.getItem('bathyc.key')") is None
    Replay.key = None

    # Loading and gone.
    Replay.ready = False
    b.run("check()")
    b.wait("document.getElementById('state-text').textContent === 'the model is being loaded'")
    Replay.ready = True
    b.wait("document.getElementById('dot').dataset.is === 'ready'")


def graphs(b, url, picture, polls=4):
    b.open(url)
    b.wait("document.getElementById('dot').dataset.is === 'ready'")
    b.keys("alt", "s")
    b.wait(f"samples.length > {polls}", seconds=60)
    labels = b.run("return [...document.querySelectorAll('.graph svg')].map(n => n.getAttribute('aria-label'))")
    assert len(labels) == b.run("return GRAPHS.length"), labels
    assert re.match(r"Throughput, tokens/s: output [\d,.]+, prompt [\d,.]+$", labels[0]), labels[0]
    assert re.match(r"Requests: running \d+, waiting \d+$", labels[1]), labels[1]
    assert re.match(r"Cache: blocks in use [\d.]+ %", labels[2]), labels[2]
    assert b.run("return document.querySelector('.graph .a').getAttribute('d').length > 8")
    facts = b.text("#facts")
    assert "Version" in facts and "Memory" in facts and "Context" in facts, facts
    picture("status")
    missing = b.run("""const names = new Set([...samples.at(-1).v.keys()].map(k => k.split('{')[0].replace('bathyc_', '')));
        const script = document.querySelector('script').textContent;
        const used = [...script.matchAll(/(?:rate|quantile|num|delta)\\((?:[ab], [ab], |[abs], )?"([a-z_]+)"/g)].map(m => m[1]);
        return used.filter(n => !names.has(n) && !names.has(n + '_bucket'))""")
    assert missing == [], f"the page reads metrics that do not exist: {missing}"
    b.keys("escape")


def accessibility(b):
    """Every control has a name, and nothing is wider than the window."""
    nameless = b.run("""return [...document.querySelectorAll('button, input, select, textarea')].filter(n =>
        !(n.getAttribute('aria-label') || n.innerText.trim() || n.textContent.trim() || (n.labels && n.labels.length)))
        .map(n => n.outerHTML)""")
    assert nameless == [], nameless
    assert b.run("return document.documentElement.scrollWidth <= innerWidth"), "the page is wider than its window"
    b.run("closePanel(); toggleSide(false)")
    assert b.run("return document.querySelector('main').clientWidth === innerWidth"), "the conversation does not fill the window"
    ids = b.run("return [...document.querySelectorAll('[id]')].map(n => n.id)")
    assert len(ids) == len(set(ids)), "two elements share an id"
    # By keyboard alone: tabbing reaches the buttons of the head and the field, and each shows where it is.
    b.run("document.activeElement.blur(); scrollTo(0, 0)")
    reached = []
    for _ in range(14):
        b.keys("tab")
        reached.append(b.run("return document.activeElement.id"))
        if reached[-1]:
            assert b.run("return getComputedStyle(document.activeElement).outlineStyle !== 'none' || document.activeElement.matches('#input')")
    assert {"show-side", "new-chat", "show-status", "show-settings", "input"} <= set(reached), reached


def contrast(b):
    """Text and what is behind it differ enough (WCAG AA: 4.5) in the colours of now."""
    poor = b.run("""
        const lum = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255).map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
          return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
        const style = getComputedStyle(document.documentElement), paint = document.createElement('i');
        document.body.append(paint);
        const rgb = name => { paint.style.color = style.getPropertyValue(name); return getComputedStyle(paint).color; };
        const pairs = [['--text', '--bg'], ['--text', '--card'], ['--soft', '--bg'], ['--soft', '--side'], ['--soft', '--card'],
                       ['--accent-text', '--accent'], ['--bad', '--bad-bg'], ['--text', '--code']];
        const out = pairs.map(([a, b]) => [lum(rgb(a)), lum(rgb(b)), a + ' on ' + b])
          .map(([x, y, n]) => [(Math.max(x, y) + .05) / (Math.min(x, y) + .05), n]).filter(([r]) => r < 4.5);
        paint.remove();
        return out""")
    assert poor == [], poor


def clean(b, allowed=()):
    """The browser reports no error of the script; failed requests that a test made are named."""
    bad = [e["message"] for e in b.console() if e["level"] == "SEVERE" and not any(a in e["message"] for a in allowed)]
    assert bad == [], bad


def main():
    program, source = sys.argv[1], Path(sys.argv[2])
    pictures = sys.argv[3] if len(sys.argv) > 3 else None
    if not have_browser():
        print("no chromium or no chromedriver")
        return 77
    Replay.source, Replay.program = source, program
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Replay)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        b = Browser(folder)
        prefix = ""

        def picture(name):
            if pictures:
                b.picture(f"{pictures}/{prefix}{name}.png")

        try:
            for prefix, width, height, dark, touch in (("desk-", 1280, 860, False, False), ("phone-", 390, 844, True, True)):
                b.device(width, height, dark, touch)
                b.open(url)
                b.run("localStorage.clear(); sessionStorage.clear()")
                conversation(b, url, picture)
                requests_of_the_page()
                accessibility(b)
                contrast(b)
                clean(b)
                graphs(b, url, picture)
                clean(b)
                b.keys("alt", ",")
                picture("settings")
                b.keys("escape")
            b.device(1280, 860, True)
            prefix = "dark-"
            troubles(b, url, picture)
            clean(b, ("429", "502", "401", "503"))
            prefix = "serve-"
            b.device(1280, 860)
            served = with_server(b, program, picture)
        finally:
            b.close()
    print("page: ok, with " + ("bathyc serve" if served else "the replaying server only"))
    return 0


def with_server(b, program, picture):
    """The conversation and the graphs against the real server. False when this program has none."""
    if " serve " not in subprocess.run([program, "help"], capture_output=True, text=True, timeout=120).stdout:
        return False
    served = http_support.Server("--honour-sampling", "--max-num-seqs", "8", wait=False)
    server, url = served.process, f"http://127.0.0.1:{served.port}/"
    try:
        b.open(url)
        b.wait("document.getElementById('dot').dataset.is === 'ready'", seconds=120)
        conversation(b, url, picture)
        clean(b, ("503",))
        graphs(b, url, picture, polls=2)
        clean(b)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(120)
        except subprocess.TimeoutExpired:
            server.kill()
            raise
    return True


if __name__ == "__main__":
    os.environ["no_proxy"] = "127.0.0.1"
    sys.exit(main())
