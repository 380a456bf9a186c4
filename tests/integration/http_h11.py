"""The server's request parser beside h11 on the same byte streams: valid ones, mutated ones, and patterns of request smuggling.

Both must find the same requests (method, target, headers, body), and stop at the same place. Where ours refuses what h11 takes, its
reason must be one of STRICTER; where ours takes what h11 refuses, the stream must fit one of LAXER. Argument: the reader program.
BY_SEED repeats a run, BY_TEST_SCALE is its length in percent."""
import collections
import json
import os
import random
import re
import subprocess
import sys

import h11

STRICTER = {
    "lines must end with CRLF": "a line feed alone ends no line: another program may not take it for an end",
    "folded headers are not accepted": "RFC 9112 5.2 wants them refused or joined; proxies differ in how they join",
    "more than one Content-Length": "also when all are equal",
    "Content-Length is not a number": "also `4, 4`, and more than 18 digits",
    "Content-Length and Transfer-Encoding exclude each other": "RFC 9112 6.1 allows to refuse; which one counts is how requests are smuggled",
    "HTTP/1.0 has no Transfer-Encoding": "RFC 9112 6.1: its framing is faulty",
    "only HTTP/1.1 and HTTP/1.0 are spoken here": "h11 reads any version as 1.1",
    "the target is malformed": "a path, `*`, or an absolute http address; no CONNECT, no host alone",
    "the method is no word": "more than 32 bytes",
    "the Host header is malformed": "no path, user or blank in it",
    "the only expectation is 100-continue": "417, as RFC 9110 10.1.1 allows",
    "a header's value holds a control character": "h11 stops at zero bytes and blanks",
    "a chunk's size is malformed": "blanks behind the size",
    "a trailer speaks of the framing": "Content-Length, Transfer-Encoding, Host or Trailer there",
    "a chunk is too large": "more than 15 digits",
    "the body is too large": "--max-body",
    "a line of the body's framing holds a control character": "in extensions of chunks",
}
LAXER = [
    (re.compile("no request line received|illegal request line"), re.compile(rb"\A\r|\r\n\r", re.S),
     "RFC 9112 2.2: an empty line or two before a request are passed over"),
]


# ---- the two readers ----

def read_h11(data):
    conn = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    conn.receive_data(data)
    out = []
    while True:
        try:
            ev = conn.next_event()
        except h11.RemoteProtocolError as e:
            return out, str(e)
        if ev is h11.NEED_DATA:
            return out, None
        if isinstance(ev, h11.Request):
            out.append({"method": ev.method, "target": ev.target, "http10": ev.http_version < b"1.1", "keep": True, "headers": list(ev.headers),
                        "body": b"", "complete": False})
        elif isinstance(ev, h11.Data):
            out[-1]["body"] += bytes(ev.data)
        elif isinstance(ev, h11.EndOfMessage):
            out[-1]["complete"] = True
            conn.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
            conn.send(h11.EndOfMessage())
            if conn.our_state is not h11.DONE:
                out[-1]["keep"] = False
                return out, None
            conn.start_next_cycle()
        else:
            return out, f"h11 says {ev!r}"


def read_ours(reader, streams):
    done = subprocess.run([reader], input="".join(s.hex() + "\n" for s in streams), capture_output=True, text=True, timeout=250)
    if done.returncode != 0:
        raise AssertionError(f"{reader}: exit {done.returncode}: {done.stderr[:500]}")
    for line in done.stdout.splitlines():
        v = json.loads(line)
        for r in v["requests"]:
            for k in ("method", "target", "body"):
                r[k] = bytes.fromhex(r[k])
            r["headers"] = [(bytes.fromhex(n), bytes.fromhex(x)) for n, x in r["headers"]]
        yield v["requests"], (v["reason"] if v["status"] else None)


# ---- streams ----

METHODS = [b"GET", b"POST", b"HEAD", b"OPTIONS", b"DELETE", b"get", b"M-SEARCH", b"CONNECT", b"A" * 32, b"A" * 33, b"G@T", b""]
TARGETS = [b"/", b"/v1/models", b"*", b"http://a/b", b"https://a", b"/a?b=c&d", b"a:80", b"/%00", b"/\xc3\xa9", b"/ x", b"//", b"", b"/#f"]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/1.", b"http/1.1", b"HTTP/11", b"HTTP/0.9", b"HTTP/1.1 "]
HEADERS = [b"Accept: */*", b"X-Y:z", b"X-Y:  z \t ", b"X-Y:", b"X Y: z", b"X-Y : z", b": z", b"X-Y", b" folded", b"\tfolded", b"X: a\x00b", b"X: a\x01b",
           b"X: \xff\xfe", b"X: a\rb", b"X: a\x7fb", b"X\xe9: z", b"X: a\tb", b"x-y: 1", b"Upgrade: h2c", b"Connection: close", b"Connection: keep-alive",
           b"Connection: Keep-Alive, Close", b"connection: x,close", b"Expect: 100-continue", b"Expect: 200-ok", b"Host: b", b"Host: a/b", b"Host:", b"Host: a b",
           b"Transfer-Encoding: identity", b"Trailer: X", b"Content-Type: text/plain", b"Content-Length: 0"]
LENGTHS = [b"Content-Length: %d", b"content-length:%d", b"Content-Length: +%d", b"Content-Length: -%d", b"Content-Length: 0%d", b"Content-Length: %d, %d",
           b"Content-Length: 0x%x", b"Content-Length: %d.0", b"Content-Length: %d ", b"Content-Length: 00000000000000000000%d"]
CODINGS = [b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked", b"Transfer-Encoding: chunked ", b"Transfer-Encoding: gzip, chunked",
           b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding : chunked",
           b"Transfer-Encoding:\n chunked", b"Transfer-Encoding: \"chunked\""]
SIZES = [b"%x", b"%X", b"0%x", b"%x;a=b", b"%x; a=\"b;c\"", b"%x ", b"%x\t", b" %x", b"0x%x", b"+%x", b"-%x", b"%xg", b"%x;\x01", b"0000000000000000%x", b"%x,"]


def usual(rng, first, others, odds=0.9):
    """The first one mostly, else any."""
    return first if rng.random() < odds else rng.choice(others)


def with_number(form, n):
    return form % ((n,) * form.count(b"%"))


def chunked(rng, body, calm):
    out, at = b"", 0
    while at < len(body):
        n = rng.randrange(1, len(body) - at + 1)
        end = usual(rng, b"\r\n", [b"\n", b"\r\n\r\n", b"", b"\r"], calm)
        out += with_number(usual(rng, b"%x", SIZES, calm), n) + usual(rng, b"\r\n", [b"\n", b"\r"], calm) + body[at:at + n] + end
        at += n
    out += usual(rng, b"0", [b"00", b"0;x", b"0 ", b"", b"0000"], calm) + b"\r\n"
    if rng.random() < 0.2:
        out += usual(rng, b"X-T: v", HEADERS, calm) + b"\r\n"
    return out + usual(rng, b"\r\n", [b"\n", b"", b"\r\n\r\n"], calm)


def request(rng):
    calm = rng.choice([1, 1, 0.97, 0.85, 0.6])
    body = rng.randbytes(rng.choice([0, 1, 3, 20])) if rng.random() < 0.8 else b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"
    lines = [usual(rng, rng.choice([b"GET", b"POST"]), METHODS, calm) + usual(rng, b" ", [b"  ", b"\t", b""], calm) + usual(rng, b"/p", TARGETS, calm) +
             usual(rng, b" ", [b"  ", b"\t"], calm) + usual(rng, b"HTTP/1.1", VERSIONS, calm)]
    if rng.random() < 0.97:
        lines.append(b"Host: a")
    for _ in range(rng.randrange(3)):
        lines.append(rng.choice(HEADERS[:2] if calm == 1 else HEADERS))
    framing = rng.choice(["none", "length", "chunked"] * 4 + ["both", "lengths", "codings"])
    if framing in ("length", "both", "lengths"):
        lines.append(with_number(usual(rng, LENGTHS[0], LENGTHS, calm), len(body)))
    if framing == "lengths":
        lines.append(with_number(LENGTHS[0], rng.choice([len(body), len(body) + 1])))
    if framing in ("chunked", "both", "codings"):
        lines.append(usual(rng, CODINGS[0], CODINGS, calm))
    if framing == "codings":
        lines.append(rng.choice(CODINGS))
    tail = lines[1:]
    rng.shuffle(tail)
    head = b"".join(x + usual(rng, b"\r\n", [b"\n", b"\r", b"\r\r\n", b"\n\r"], max(calm, 0.9)) for x in lines[:1] + tail)
    return head + b"\r\n" + (b"" if framing == "none" else body if framing in ("length", "lengths") else chunked(rng, body, calm))


def mutated(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            data[at:at + rng.randrange(1, 4)] = b""
        elif kind == 1:
            data[at:at] = rng.choice([b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\0", b"0", b"a", b",", b";", b"\x80"])
        elif kind == 2:
            data[at:] = b""
        else:
            data[at:at + 1] = rng.randbytes(1)
    return bytes(data)


def stream(rng):
    data = b"".join(request(rng) for _ in range(rng.choice([1, 1, 2, 3])))
    if rng.random() < 0.05:
        data = b"\r\n" * rng.randrange(1, 4) + data
    return mutated(rng, data) or b"G"


# ---- comparison ----

def difference(a, b):
    """What differs between two requests that ours (a) and h11 (b) have read; None when nothing does."""
    names = [n for n, _ in a["headers"]]
    values = [(n, v.lower() if n == b"transfer-encoding" else v) for n, v in a["headers"]]
    for k in ("method", "target", "http10", "body", "complete"):
        if a[k] != b[k]:
            return k
    if values != b["headers"]:
        return "headers"
    if a["keep"] != b["keep"] and a["complete"]:
        old = a["http10"] and b"connection" in names  # h11 keeps no connection of HTTP/1.0
        return None if old and a["keep"] else "keep"
    return None


def compare(data, ours, theirs, told):
    """Why this is a fault, or None. told counts what is a documented choice."""
    (a, bad), (b, why) = ours, theirs
    for i, (x, y) in enumerate(zip(a, b)):
        d = difference(x, y)
        if d in ("body", "complete") and i == len(a) - 1 and bad in STRICTER and y["body"].startswith(x["body"]):
            told[bad] += 1
            return None
        if d in ("body", "complete") and i == len(b) - 1 and why and bad and x["body"].startswith(y["body"]):
            return None  # both refuse inside this body
        if d:
            return f"request {i}: {d}: {x} and {y}"
        if x["complete"] and not y["keep"]:
            return None  # h11 reads no further
    if len(a) < len(b) or (bad and not why):
        if bad in STRICTER:
            told[bad] += 1
            return None
        if bad and read_h11(data + b"\r\n\r\n")[1]:
            told["refused before the line or the head is complete"] += 1
            return None
        return f"ours refuses: {bad}" if bad else f"ours has read {len(a)} requests, h11 {len(b)}"
    if why and not bad or len(a) > len(b):
        for words, pattern, reason in LAXER:
            if words.search(why or "") and pattern.search(data):
                told[reason] += 1
                return None
        return f"h11 refuses: {why}"
    return None


def main():
    seed = int(os.environ.get("BY_SEED", "1"))
    n = max(500, 20000 * int(os.environ.get("BY_TEST_SCALE", "100")) // 100)
    rng = random.Random(seed)
    streams = [stream(rng) for _ in range(n)]
    told, faults, accepted, n_read = collections.Counter(), 0, 0, 0
    for data, ours in zip(streams, read_ours(sys.argv[1], streams)):
        n_read += 1
        theirs = read_h11(data)
        wrong = compare(data, ours, theirs, told)
        accepted += sum(r["complete"] for r in ours[0])
        if wrong:
            faults += 1
            if faults <= 10:
                print(f"FAILED  {data!r}\n        {wrong}\n        ours: {ours[1]}; h11: {theirs[1]}")
    print(f"seed {seed}: {n_read} streams, {accepted} requests read by ours, {faults} faults; choices:")
    for reason, count in told.most_common():
        print(f"{count:6}  {reason}" + (f": {STRICTER[reason]}" if reason in STRICTER else ""))
    if n_read != n or accepted < n // 4:
        print("FAILED  too little was compared")
        return 1
    return 1 if faults else 0


sys.exit(main())
