"""The APIs over HTTP, with the bundled model: what users of other servers complained about (names in brackets)."""
import json
import os
import socket
import sys
import threading
import time
import urllib.parse

from http_support import DEADLINE, Server, chat, equal, events, read_all, request, run, scaled, slow

server = Server("--max-num-seqs", "4", "--ping-interval", "0.2")
THINK_OFF = {"thinking": {"type": "disabled"}}


def post(path, body, want=200, headers=None):
    return server.json("POST", path, body, headers, want)


def stream(path, body):
    status, headers, data = server.call("POST", path, {**body, "stream": True})
    equal((status, headers.get("content-type"), headers.get("cache-control"), headers.get("x-accel-buffering")),
          (200, "text/event-stream", "no-cache", "no"), data[:300])
    return events(data)


def without_noise(v):
    """An answer without what differs from one request to the next."""
    if isinstance(v, dict):
        return {k: without_noise(x) for k, x in v.items() if k not in ("id", "created", "created_at", "completed_at", "signature",
                                                                       "encrypted_content", "call_id")}
    return [without_noise(x) for x in v] if isinstance(v, list) else v


def chat_whole_and_streamed_agree():
    """[O23] Text and usage are the same both ways, and the usage event has no choices."""
    body = chat("What is 17 plus 25?", temperature=0, max_tokens=30)
    whole = post("/v1/chat/completions", body)
    got = stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    equal(got[-1], (None, "[DONE]"))
    chunks = [json.loads(d) for _, d in got[:-1]]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    equal(text, whole["choices"][0]["message"]["content"])
    equal(text, "17 + 25 = 42.")
    usage = [c["usage"] for c in chunks if not c["choices"]]
    equal(len(usage), 1, "one usage event")
    for u in (usage[0], whole["usage"]):
        u["prompt_tokens_details"]["cached_tokens"] = u["prompt_cache_hit_tokens"] = u["prompt_cache_miss_tokens"] = 0
    equal(usage[0], whole["usage"])
    equal(chunks[-2]["choices"][0]["finish_reason"], "stop")
    plain = [json.loads(d) for _, d in stream("/v1/chat/completions", body)[:-1]]
    equal(any(not c["choices"] for c in plain), False, "no usage event unless asked for")
    each = [json.loads(d) for _, d in stream("/v1/chat/completions", {**body, "stream_options": {
        "include_usage": True, "continuous_usage_stats": True}})[:-1]]
    counts = [c["usage"]["completion_tokens"] for c in each]
    equal((counts == sorted(counts), counts[0], counts[-1]), (True, 0, whole["usage"]["completion_tokens"]), "counts in every event")


def reasoning_tokens_are_told():
    a = post("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "temperature": 0})
    m, u = a["choices"][0]["message"], a["usage"]
    equal((len(m["reasoning_content"]) > 0, 0 < u["completion_tokens_details"]["reasoning_tokens"] < u["completion_tokens"]), (True, True), a)
    equal(u["total_tokens"], u["prompt_tokens"] + u["completion_tokens"])


def completions_whole_and_streamed_agree():
    body = {"model": "tiny", "prompt": ["The", "A cat"], "temperature": 0, "max_tokens": 8, "n": 1}
    whole = post("/v1/completions", body)
    got = [json.loads(d) for _, d in stream("/v1/completions", body)[:-1]]
    for choice in whole["choices"]:
        text = "".join(c["choices"][0]["text"] for c in got if c["choices"][0]["index"] == choice["index"])
        equal(text, choice["text"])
    equal(len(whole["choices"]), 2)


def messages_whole_and_streamed_agree():
    body = {"model": "tiny", "max_tokens": 30, "messages": [{"role": "user", "content": "What is 17 plus 25?"}], **THINK_OFF}
    whole = post("/v1/messages", body, headers={"anthropic-version": "2023-06-01"})
    got = stream("/v1/messages", body)
    equal([n for n, _ in got if n not in ("content_block_delta", "ping")],
          ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"])
    equal(all(json.loads(d)["type"] == n for n, d in got), True)
    equal((whole["type"], whole["role"], whole["content"][0]["type"]), ("message", "assistant", "text"))
    n = post("/v1/messages/count_tokens", {k: v for k, v in body.items() if k != "max_tokens"})
    equal(n, {"input_tokens": whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"]})
    e = post("/v1/messages", {**body, "temperature": 7}, 400)
    equal((e["type"], e["error"]["type"], "temperature" in e["error"]["message"]), ("error", "invalid_request_error", True))


def responses_whole_and_streamed_agree():
    body = {"model": "tiny", "input": "What is 17 plus 25?", "max_output_tokens": 40, "reasoning": {"effort": "none"}}
    whole = post("/v1/responses", body)
    got = [(n, json.loads(d)) for n, d in stream("/v1/responses", body)]
    equal(got[0][0], "response.created")
    equal(got[-1][0] in ("response.completed", "response.incomplete"), True)
    equal([d["sequence_number"] for _, d in got], list(range(len(got))))
    equal(got[-1][1]["response"]["object"], whole["object"])


def responses_are_stored_and_gone_on_from():
    base = {"model": "tiny", "max_output_tokens": 200, "temperature": 0, "honour_sampling": True}  # thinking has temperature 1 else
    ask = {**base, "input": "My name is Ada."}
    one = post("/v1/responses", ask)
    equal((one["store"], one["previous_response_id"]), (True, None))
    equal(server.json("GET", f"/v1/responses/{one['id']}"), one)
    item, = server.json("GET", f"/v1/responses/{one['id']}/input_items")["data"]
    equal((item.pop("id").startswith("msg_"), item), (True, {"type": "message", "status": "completed", "role": "user",
                                                             "content": [{"type": "input_text", "text": "My name is Ada."}]}))
    for nothing in ({"input": ""}, {"input": "", "instructions": ""}, {"input": "", "previous_response_id": one["id"]}):
        equal(server.call("POST", "/v1/responses", {**base, **nothing})[0], 400, nothing)
    two = post("/v1/responses", {**base, "input": "What is 17 plus 25?", "previous_response_id": one["id"]})
    equal(two["previous_response_id"], one["id"])
    by_hand = post("/v1/responses", {**base, "store": False, "input": [
        {"role": "user", "content": "My name is Ada."}, *one["output"], {"role": "user", "content": "What is 17 plus 25?"}]})
    equal(without_noise(two["output"]), without_noise(by_hand["output"]))
    equal(two["usage"]["input_tokens"], by_hand["usage"]["input_tokens"])
    equal((by_hand["store"], server.json("GET", f"/v1/responses/{by_hand['id']}", want=404)["error"]["code"]), (False, "response_not_found"))
    got = stream("/v1/responses", {**base, "input": [{"role": "user", "content": "And?"}], "previous_response_id": two["id"]})
    last = json.loads(got[-1][1])["response"]
    equal(server.json("GET", f"/v1/responses/{last['id']}"), last)
    equal(server.json("DELETE", f"/v1/responses/{two['id']}")["deleted"], True)
    server.json("GET", f"/v1/responses/{two['id']}", want=404)
    equal(post("/v1/responses", {**base, "input": "x", "previous_response_id": two["id"]}, 404)["error"]["code"], "previous_response_not_found")
    for nothing in ({"input": None}, {"input": ""}, {}):  # with instructions, these are as good as not there
        r = post("/v1/responses", {**base, **nothing, "instructions": "Be brief.", "previous_response_id": one["id"]})
        more = post("/v1/responses", {**base, **nothing, "instructions": "Be brief."})
        equal((r["previous_response_id"], r["usage"]["input_tokens"] > more["usage"]["input_tokens"] + 5), (one["id"], True), nothing)
        for x in (r, more):
            equal(server.json("GET", f"/v1/responses/{x['id']}"), x, nothing)
            server.json("DELETE", f"/v1/responses/{x['id']}")
    for bad in ({"store": 1}, {"background": "x"}, {"background": True, "stream": True}, {"background": True, "store": False},
                {"previous_response_id": one["id"], "conversation": "c"}, {"conversation": 7}, {"input": 7}, {"input": [7]}):
        post("/v1/responses", {**ask, **bad}, 400)
    equal(server.metrics()["bathyc_stored_responses"], 2)


def pages(s, path, limit, order=None):
    """All ids of a list, page by page."""
    out, after = [], None
    while True:
        query = "&".join(f"{k}={v}" for k, v in (("limit", limit), ("order", order), ("after", after)) if v)
        page = s.json("GET", f"{path}{'&' if '?' in path else '?'}{query}")
        ids = [x["id"] for x in page["data"]]
        equal((page["object"], page["first_id"], page["last_id"]), ("list", ids[0] if ids else None, ids[-1] if ids else None))
        out += ids
        if not page["has_more"]:
            return out
        equal(len(ids), limit)
        after = page["last_id"]


def items_have_ids_and_come_in_pages():
    """after, limit and order as in OpenAI's API: 20 items and the newest first when nothing is said."""
    parts = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"number {i}"} for i in range(46)]
    parts += [{"id": "mine &+%/é", "role": "user", "content": [{"type": "input_text", "text": "my own id"}]},
              {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c1", "output": "x"}]
    r = post("/v1/responses", {"model": "tiny", "input": parts, "max_output_tokens": 1})
    path = f"/v1/responses/{r['id']}/input_items"
    items = server.json("GET", path + "?limit=100&order=asc")["data"]
    equal([i["type"] for i in items], ["message"] * 47 + ["function_call", "function_call_output"])
    equal([i["content"][0]["text"] for i in items[:46]], [f"number {i}" for i in range(46)])
    equal([i["content"][0]["type"] for i in items[:2]], ["input_text", "output_text"])
    ids = [i["id"] for i in items]
    equal((len(set(ids)), ids[46], ids[47][:3], ids[48][:4]), (49, "mine &+%/é", "fc_", "fco_"))
    first = server.json("GET", path)
    equal(([i["id"] for i in first["data"]], first["has_more"]), (ids[:28:-1], True))
    equal(pages(server, path, 7), ids[::-1])
    equal(pages(server, path, 49, "asc"), ids)
    equal(server.json("GET", path + "?order=asc&limit=1&after=mine%20%26%2B%25/%C3%A9")["data"], items[47:48])
    equal(server.json("GET", path + f"?order=asc&after={ids[-1]}"), {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False})
    for query, name in (("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=-1", "limit"), ("order=up", "order"), ("after=none", "after"),
                        ("after=%zz", "query"), ("limit=99999999999999999999", "limit")):
        equal(name in server.json("GET", f"{path}?{query}", want=400)["error"]["message"], True, query)
    for odd in (7, {}, {"type": {}}, {"role": 1}, {"id": "a"}, [], None):
        equal("items[1]" in server.json("POST", "/v1/conversations", {"items": [parts[0], odd]}, want=400)["error"]["message"], True, odd)
        post("/v1/responses", {"model": "tiny", "input": [parts[0], odd], "background": True}, 400)
    c = server.json("POST", "/v1/conversations", {"items": parts[:5]})
    equal(len(pages(server, f"/v1/conversations/{c['id']}/items", 2)), 5)
    back = post("/v1/responses", {"model": "tiny", "input": items[:4] + [{"role": "user", "content": "x"}], "max_output_tokens": 1})
    equal(pages(server, f"/v1/responses/{back['id']}/input_items", 10, "asc")[:4], ids[:4])
    long = post("/v1/responses", {"model": "tiny", "input": parts[:4], "max_output_tokens": 1})
    equal(back["usage"]["input_tokens"] - long["usage"]["input_tokens"] in (2, 3, 4), True, "the stored form makes the same prompt")


def conversations_collect_items():
    c = server.json("POST", "/v1/conversations", {"items": [{"type": "message", "role": "user", "content": "My name is Ada."}],
                                                  "metadata": {"a": "b"}})
    equal(server.json("GET", f"/v1/conversations/{c['id']}"), c)
    equal(c["metadata"], {"a": "b"})
    for body in ({"items": []}, {"items": [{"role": "user", "content": "x"}], "metadata": {}}):
        equal("items" in server.json("POST", f"/v1/conversations/{c['id']}", body, want=400)["error"]["message"], True)
    base = {"model": "tiny", "max_output_tokens": 100, "temperature": 0, "conversation": c["id"]}
    one = post("/v1/responses", {**base, "input": "What is 17 plus 25?"})
    equal(one["conversation"], {"id": c["id"]})
    items = server.json("GET", f"/v1/conversations/{c['id']}/items?order=asc")["data"]
    equal([i["type"] for i in items], ["message", "message"] + [i["type"] for i in one["output"]])
    two = post("/v1/responses", {**base, "conversation": {"id": c["id"]}, "input": "Hi"})
    equal(two["usage"]["input_tokens"] > one["usage"]["input_tokens"], True)
    server.json("DELETE", f"/v1/conversations/{c['id']}")
    post("/v1/responses", {**base, "input": "Hi"}, 404)


def a_small_store_drops_the_oldest():
    """Responses that end make room for their own conversation: what is dropped is not used any more."""
    s = Server("--response-store", "6K")
    body, c = {"model": "tiny", "max_output_tokens": 5, "input": "word " * 40}, None
    for i in range(scaled(30, 12)):
        c = c or s.json("POST", "/v1/conversations", {})["id"]
        status, _, data = s.call("POST", "/v1/responses", {**body, "conversation": c})
        if status != 200:  # dropped, or too long for the context
            equal(status in (400, 404), True, data)
            c = None
        end = time.monotonic() + DEADLINE
        while True:  # what is cancelled goes when the worker is done with it: on a busy machine the store may be full until then
            status, _, data = s.call("POST", "/v1/responses", {**body, "background": True})
            if status != 429 or time.monotonic() > end:
                break
            time.sleep(0.01)
        equal(status, 200, data)
        s.call("POST", f"/v1/responses/{json.loads(data)['id']}/cancel", {})
    equal(s.metrics()["bathyc_stored_responses"] < 15, True)
    equal(s.stop(), 0)


def a_conversation_stays_within_the_bound():
    s = Server("--response-store", "64K")
    def big(n):
        return {"items": [{"role": "user", "content": "x" * n}]}
    def refused(path, body):
        equal(s.json("POST", path, body, want=413)["error"]["code"], "store_full", path)
    refused("/v1/conversations", big(70000))
    refused("/v1/conversations", {"metadata": {"a": "x" * 70000}})
    c = s.json("POST", "/v1/conversations", {})["id"]
    path = f"/v1/conversations/{c}"
    refused(path, {"metadata": {"a": "x" * 70000}})
    status = [s.call("POST", path + "/items", big(7000))[0] for _ in range(20)]
    n = status.count(200)
    equal((status, 3 < n < 10), ([200] * n + [413] * (20 - n), True))
    refused(path + "/items", big(7000))
    items = pages(s, path + "/items", 3)
    equal((len(items), len(set(items))), (n, n), "what was refused left nothing")
    s.json("DELETE", f"{path}/items/{items[1]}")
    equal(s.call("POST", path + "/items", big(6900))[0], 200, "there is room again")
    s.stop()


def items_are_found_after_others_are_gone():
    """Deleting first, last and middle ones: the rest stay what they were, whatever their ids and texts."""
    own = [{"id": f"é\"\\{i}" * (i % 3 + 1), "type": "message", "role": "user", "status": "completed",
            "content": [{"type": "input_text", "text": f'{i},"]}}{{[' * (i % 5 + 1)}]} for i in range(12)]
    c = server.json("POST", "/v1/conversations", {"items": own[:5]})["id"]
    path, left = f"/v1/conversations/{c}/items", list(own)
    server.json("POST", path, {"items": own[5:]})
    for k in (0, 10, 4, 4, 0, 6, 5, 1, 1, 2, 1, 0):
        gone = urllib.parse.quote(left.pop(k)["id"], safe="")
        server.json("DELETE", f"{path}/{gone}")
        server.json("GET", f"{path}/{gone}", want=404)
        server.json("DELETE", f"{path}/{gone}", want=404)
        equal(server.json("GET", path + "?order=asc")["data"], left)
        for x in left:
            equal(server.json("GET", f"{path}/{urllib.parse.quote(x['id'], safe='')}"), x)
    server.json("POST", path, {"items": own[:3]})
    equal(server.json("GET", path + "?order=asc")["data"], own[:3])
    server.json("DELETE", f"/v1/conversations/{c}")


def long_lists_are_not_read_again():
    """A page, one item and its end cost nothing like what reading the whole list costs: everyone else waits for it."""
    body = b'{"items":[{"role":"user","id":"first","content":"a"},{"role":"user","id":"middle","content":"b"},{"role":"user","id":"last","content":"c"},{"type":"x","n":[' + b"0," * scaled(6000000, 1500000) + b"0]}]}"
    start = time.monotonic()
    status, _, data = server.call("POST", "/v1/conversations", body)
    whole = time.monotonic() - start
    equal(status, 200)
    path = f"/v1/conversations/{json.loads(data)['id']}"
    def takes(method, more):
        start = time.monotonic()
        server.json(method, path + more)
        return time.monotonic() - start
    page = min(takes("GET", "/items?order=asc&limit=1") for _ in range(9))
    item = min(takes("GET", "/items/last") for _ in range(9))
    end = min(takes("DELETE", f"/items/{i}") for i in ("last", "first", "middle"))
    equal((page < whole / 4, item < whole / 4, end < whole / 4), (True, True, True), (whole, page, item, end))
    server.json("DELETE", path)


def responses_at_once_share_a_conversation():
    c = server.json("POST", "/v1/conversations", {})
    body = {"model": "tiny", "max_output_tokens": 40, "conversation": c["id"], "ignore_eos": True}
    threads = [threading.Thread(target=post, args=("/v1/responses", {**body, "input": f"number {i}"})) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    items = server.json("GET", f"/v1/conversations/{c['id']}/items?order=asc")["data"]
    equal(sorted(i["content"][0]["text"] for i in items if i.get("role") == "user"), [f"number {i}" for i in range(3)])
    server.json("DELETE", f"/v1/conversations/{c['id']}")


def background_responses_are_bounded():
    s = Server("--backend", "null", "--null-rate", "1", "--response-store", "64K")
    body = {"model": "tiny", "input": "Hi", "background": True, "max_output_tokens": 900}
    status = [s.call("POST", "/v1/responses", body)[0] for _ in range(300)]
    n = status.count(200)
    equal((status, 4 < n < 250), ([200] * n + [429] * (300 - n), True))
    equal(s.call("POST", "/v1/responses", {**body, "background": False, "max_output_tokens": 1})[0], 200)
    s.process.kill()


def background_responses_name_their_model():
    one = post("/v1/responses", {"model": "tiny", "input": "Hello", "background": True})
    equal((one["status"], one["model"]), ("in_progress", "tiny"))


def background_responses_can_be_cancelled():
    body = {"model": "tiny", "input": "Hi", "background": True, "temperature": 0, "metadata": {"a": "é\""}}
    r = post("/v1/responses", {**body, "max_output_tokens": 20})
    equal((r["status"], r["background"], r["metadata"]), ("in_progress", True, body["metadata"]))
    end = time.monotonic() + DEADLINE
    while True:
        got = server.json("GET", f"/v1/responses/{r['id']}")
        if got["status"] != "in_progress" or time.monotonic() > end:
            break
        time.sleep(0.02)
    equal((got["status"], got["id"], got["background"], got["usage"]["output_tokens"]), ("incomplete", r["id"], True, 20))
    r = post("/v1/responses", {**body, "ignore_eos": True, "max_output_tokens": 900})
    post(f"/v1/responses/{r['id']}/cancel", {})
    server.wait_metric("bathyc_requests_running", lambda v: v == 0)
    got = server.json("GET", f"/v1/responses/{r['id']}")
    equal((got["status"], got["metadata"]), ("cancelled", body["metadata"]))
    bad = post("/v1/responses", {**body, "temperature": 9})
    end = time.monotonic() + DEADLINE
    while server.json("GET", f"/v1/responses/{bad['id']}")["status"] == "in_progress" and time.monotonic() < end:
        time.sleep(0.02)
    got = server.json("GET", f"/v1/responses/{bad['id']}")
    equal((got["status"], got["metadata"]), ("failed", body["metadata"]))
    r = post("/v1/responses", {**body, "ignore_eos": True, "max_output_tokens": 900})
    equal(server.json("DELETE", f"/v1/responses/{r['id']}")["deleted"], True)
    server.wait_metric("bathyc_requests_running", lambda v: v == 0)


def upload(s, data, name="in.jsonl"):
    body = (f'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz\r\nContent-Disposition: form-data; '
            f'name="file"; filename="{name}"\r\n\r\n').encode() + data + b"\r\n--xyz--\r\n"
    status, _, answer = s.call("POST", "/v1/files", body, {"Content-Type": "multipart/form-data; boundary=xyz"})
    return status, json.loads(answer)


def uploads_are_read_to_their_border():
    """Data that looks like a border, or ends like one; forms with a preamble, another order, without an end."""
    for data in (b"", b"a", b"-xyz", b"a--xyz--\r\n", b"a\r\n--xy", b"\r\n", b"\r\n\r\n", b"\r\n--", b"a\r", b"\n--xyz", b"\r\r\n", bytes(range(256))):
        status, f = upload(server, data)
        equal((status, f.get("bytes")), (200, len(data)), data)
        equal(server.call("GET", f"/v1/files/{f['id']}/content")[2], data)
        server.json("DELETE", f"/v1/files/{f['id']}")
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch'
    multipart = {"Content-Type": "multipart/form-data; charset=utf-8; boundary=\"b\""}
    for body, want in ((head + b"\r\n--b--", 200), (b"preamble\r\n" + head + b"\r\n--b--\r\nepilogue", 200), (head, 400), (head[:20], 400), (b"--b--", 400),
                       (b"--b", 400), (b"", 400), (b"\r\n--b\r\n\r\n\r\n--b--", 400), (head.replace(b"\r\n\r\nx", b"\r\nx") + b"\r\n--b--", 400)):
        status, _, data = server.call("POST", "/v1/files", body, multipart)
        equal(status, want, body)
        if status == 200:
            server.json("DELETE", f"/v1/files/{json.loads(data)['id']}")


def batch(s, n, **more):
    """A batch of n lines, ended."""
    body = {"model": "tiny", "prompt": "a", "max_tokens": 5, "ignore_eos": True, **more}
    lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) for i in range(n)]
    status, f = upload(s, "\n".join(lines).encode())
    equal(status, 200)
    b = s.json("POST", "/v1/batches", {"input_file_id": f["id"], "endpoint": "/v1/completions", "completion_window": "24h"})
    end = time.monotonic() + DEADLINE
    while b["status"] == "in_progress" and time.monotonic() < end:
        time.sleep(0.02)
        b = s.json("GET", f"/v1/batches/{b['id']}")
    return b


def a_batch_waits_for_a_full_queue():
    s = Server("--max-queue", "1", "--max-num-seqs", "1")
    b = batch(s, 24)
    equal((b["status"], b["request_counts"]), ("completed", {"total": 24, "completed": 24, "failed": 0}))
    s.stop()


def files_and_batches_are_bounded():
    s = Server("--response-store", "64K")
    status, f = upload(s, b"x", "n" * 5000)
    equal((status, len(f["filename"])), (200, 1024))
    b = batch(s, 200, max_tokens=20)
    equal((b["status"], b["failed_at"] is not None, b["request_counts"]["completed"] < 200), ("failed", True, True))
    equal(s.call("POST", "/v1/batches", {"input_file_id": b["input_file_id"], "endpoint": "/v1/completions"})[0], 413)
    for f in s.json("GET", "/v1/files")["data"]:
        s.json("DELETE", f"/v1/files/{f['id']}")
    status = [upload(s, b"")[0] for _ in range(1000)]
    n = status.count(200)
    equal((n > 10, status == [200] * n + [413] * (1000 - n), n < 1000), (True, True, True), n)
    s.stop()


def lists_of_files_and_batches_come_in_pages():
    s = Server("--backend", "null", "--null-rate", "0")
    files = [upload(s, b"x" * i, f"{i}.jsonl")[1]["id"] for i in range(7)]
    equal(pages(s, "/v1/files", 3), files[::-1])
    equal(pages(s, "/v1/files", 7, "asc"), files)
    equal(pages(s, "/v1/files?purpose=batch", 2, "asc"), files)
    equal(pages(s, "/v1/files?purpose=user_data", 2), [])
    batches = [batch(s, 2)["id"] for _ in range(5)]
    equal(pages(s, "/v1/batches", 2), batches[::-1])
    equal(pages(s, "/v1/batches", 2, "asc"), batches)
    equal(len(pages(s, "/v1/files?purpose=batch_output", 2)), 5)
    for path in ("/v1/files?limit=10001", "/v1/batches?limit=101", "/v1/batches?after=file-1", "/v1/files?order=1"):
        s.json("GET", path, want=400)
    s.stop()


def history_that_comes_back_is_reused():
    """[O29] three tool turns through /v1/responses: the n-th request finds what the earlier ones have computed."""
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    previous, before = None, 0
    for i in range(3):
        r = post("/v1/responses", {"model": "tiny", "tools": [tool], "max_output_tokens": 40, "temperature": 0, "reasoning": {"effort": "low"},
                                   "previous_response_id": previous, "input": f"{i} more. " + "A long story. " * 12})
        cached = r["usage"]["input_tokens_details"]["cached_tokens"]
        if cached < before // 128 * 128:
            raise AssertionError(f"turn {i}: {cached} of {before} tokens found")
        previous, before = r["id"], r["usage"]["input_tokens"]


def thinking_switches_in_every_dialect():
    """[O14]"""
    def ids(**more):
        return post("/tokenize", {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], **more})["tokens"]
    off = ids(thinking={"type": "disabled"})
    for more in ({"chat_template_kwargs": {"thinking": False}}, {"chat_template_kwargs": {"enable_thinking": False}},
                 {"enable_thinking": False}, {"reasoning_effort": "none"}):
        equal(ids(**more), off, more)
    equal(ids() != off, True)
    e = post("/v1/chat/completions", chat(enable_thinking=True), 400)
    equal("contradict" in e["error"]["message"], True, e)


def empty_and_odd_bodies_are_400_with_a_name():
    """[O39] and the next good request works."""
    for path, body, name in [("/v1/completions", {"prompt": ""}, "prompt"), ("/v1/completions", {"prompt": []}, "prompt"),
                             ("/v1/completions", {"prompt": [[]]}, "prompt"), ("/v1/chat/completions", {"messages": []}, "messages"),
                             ("/v1/chat/completions", {"messages": [{"role": "user", "content": None}]}, "content"),
                             ("/v1/chat/completions", {"messages": [{"role": "user", "content": []}]}, "content"),
                             ("/v1/chat/completions", {"messages": 7}, "messages"), ("/v1/messages", {"max_tokens": 1, "messages": []}, "messages"),
                             ("/v1/responses", {"input": []}, "input"), ("/v1/completions", {"prompt": [0, 99999999]}, "prompt"),
                             ("/v1/chat/completions", {**chat(), "temperature": "hot"}, "temperature"),
                             ("/tokenize", {"prompt": 7}, "prompt"), ("/detokenize", {"tokens": [-1]}, "tokens"), ("/tokenize", {}, "prompt")]:
        e = post(path, {"model": "tiny", **body}, 400)
        equal(name in e["error"]["message"].lower(), True, (path, body, e))
    for raw in (b"", b"{", b"[]", b"null", b"\xff", b'{"model":"\\ud800"}', b"{}" * 100, b"[" * 5000):
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/messages/count_tokens", "/tokenize",
                     "/detokenize"):
            status, _, data = server.call("POST", path, raw)
            equal((status, "message" in json.loads(data)["error"]), (400, True), (path, raw[:20], data[:200]))
    equal(post("/v1/chat/completions", chat(max_tokens=1))["object"], "chat.completion")


def odd_but_good_conversations():
    """[O40] an empty answer in the history; [O7] tools without schemas; [O10] reasoning given back or not; [O12] quoted placeholder."""
    post("/v1/chat/completions", {"model": "tiny", "max_tokens": 1, "messages": [
        {"role": "user", "content": "A"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "B"}]})
    tools = [{"type": "function", "function": {"name": f"t{i}", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}
             for i in range(12)]
    tools[6]["function"]["parameters"] = {"type": "object", "properties": {}}
    del tools[7]["function"]["parameters"]
    post("/v1/chat/completions", chat(max_tokens=1, tools=tools))
    history = [{"role": "user", "content": "Hi"}]
    for i in range(2):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "t0", "arguments": "{\"a\":\"x\"}"}}
        history += [{"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": f"R{i} zebra"},
                    {"role": "tool", "tool_call_id": f"c{i}", "content": "done"}]
    body = {"model": "tiny", "messages": history, "tools": tools[:1], "max_tokens": 1}
    post("/v1/chat/completions", body)
    text = post("/detokenize", {"tokens": post("/tokenize", body)["tokens"]})["prompt"]
    equal(("R0 zebra" in text, "R1 zebra" in text), (True, True))
    for m in history:
        m.pop("reasoning_content", None)
    post("/v1/chat/completions", body)
    quoted = [{"role": "user", "content": "what does `<｜deepseek_image｜>` and <｜image｜> mean?"}]
    post("/v1/chat/completions", {"model": "tiny", "messages": quoted, "max_tokens": 1})
    post("/v1/chat/completions", {"model": "tiny", "messages": quoted + [{"role": "assistant", "content": "It <｜image｜>"}, {
        "role": "user", "content": "and?"}], "max_tokens": 1})


def lengths():
    """[O41] the context is 1024: both numbers in the text, and no limit given means what is left."""
    long = {"model": "tiny", "prompt": [300] * 1000, "max_tokens": 64}
    e = post("/v1/completions", long, 400)
    equal((e["error"]["code"], "1064" in e["error"]["message"] or ("1000" in e["error"]["message"] and "64" in e["error"]["message"]),
           "1024" in e["error"]["message"]), ("context_length_exceeded", True, True), e)
    e = post("/v1/completions", {**long, "prompt": [300] * 1100, "max_tokens": 1}, 400)
    equal((e["error"]["code"], "1100" in e["error"]["message"]), ("context_length_exceeded", True), e)
    a = post("/v1/completions", {"model": "tiny", "prompt": [300] * 1014, "ignore_eos": True, "max_tokens": 10})
    equal((a["usage"]["completion_tokens"], a["choices"][0]["finish_reason"]), (10, "length"))


def models_and_tokens():
    data = server.json("GET", "/v1/models")["data"]
    equal([(m["id"], m["max_model_len"]) for m in data], [("DeepSeek-V4.1-Flash", 1024), ("tiny", 1024)])
    equal(server.json("GET", "/v1/models/tiny")["id"], "tiny")
    equal(server.json("GET", "/v1/models/none%2Fsuch", want=404)["error"]["code"], "model_not_found")
    e = post("/v1/chat/completions", {**chat(), "model": "gpt"}, 404)
    equal("DeepSeek-V4.1-Flash" in e["error"]["message"], True)
    a, b = post("/tokenize", {"prompt": "Héllo </think>"}), post("/tokenize", {"prompt": "Héllo </think>", "add_special_tokens": False})
    equal((a["count"], a["tokens"], a["max_model_len"]), (len(a["tokens"]), [0] + b["tokens"], 1024))
    equal(post("/detokenize", {"tokens": b["tokens"]}), {"prompt": "Héllo </think>"})
    equal(post("/detokenize", {"tokens": []}), {"prompt": ""})
    equal("tokens[1]: 99999999 " in post("/detokenize", {"tokens": [72, 99999999]}, 400)["error"]["message"], True)
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize"):
        equal("line 1 column 1:" in server.json("POST", path, b"", want=400)["error"]["message"], True, path)
    equal(post("/detokenize", {"tokens": [], "model": "tiny"}), {"prompt": ""})
    equal("model" in post("/detokenize", {"tokens": b["tokens"], "model": "nope"}, 404)["error"]["message"], True)
    for odd in ("false", 0, [], {}):
        for body in ({"prompt": "a"}, {"messages": [{"role": "user", "content": "a"}]}):
            equal("add_special_tokens" in post("/tokenize", {**body, "add_special_tokens": odd}, 400)["error"]["message"], True, (odd, body))
    equal(post("/tokenize", {"prompt": "a", "add_special_tokens": None}), post("/tokenize", {"prompt": "a"}))


def tasks_of_clients_that_left_are_not_done():
    """Requests for the one worker that nobody waits for any more do not hold up those behind them."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "words in é " * 50000}]}
    one = []
    for _ in range(3):
        start = time.monotonic()
        post("/v1/messages/count_tokens", body)
        one.append(time.monotonic() - start)
    waits = []
    while not waits or waits[-1] >= 30 * sorted(one)[1]:  # once must do, a busy machine can hold up any try
        assert len(waits) < 5, (one, waits)
        gone = [socket.create_connection(("127.0.0.1", server.port), DEADLINE) for _ in range(100)]
        for s in gone:
            s.sendall(request("POST", "/v1/messages/count_tokens", body))
        time.sleep(4 * min(one))  # they are read, most of them are not done
        for s in gone:
            s.close()
        start = time.monotonic()
        post("/v1/messages/count_tokens", body)
        waits.append(time.monotonic() - start)


def served_names_are_taken_everywhere():
    """--served-model-name and its alias: every path takes each of them, answers under the one that was asked for, and takes no other."""
    s = Server("--served-model-name", "first/one", "--alias", "second")
    equal([m["id"] for m in s.json("GET", "/v1/models")["data"]], ["first/one", "second"])
    equal(s.json("GET", "/v1/models/first/one")["id"], "first/one")
    user = [{"role": "user", "content": "Hi"}]
    bodies = [("/v1/chat/completions", {"messages": user, "max_tokens": 1}), ("/v1/completions", {"prompt": "Hi", "max_tokens": 1}),
              ("/v1/responses", {"input": "Hi", "max_output_tokens": 1}), ("/v1/messages", {"messages": user, "max_tokens": 1}),
              ("/v1/messages/count_tokens", {"messages": user}), ("/tokenize", {"messages": user}), ("/tokenize", {"prompt": "Hi"}),
              ("/tokenize", {"prompt": "Hi", "add_special_tokens": False})]
    for path, body in bodies:
        for name in ("first/one", "second"):
            a = s.json("POST", path, {"model": name, **body})
            equal(a.get("model", name), name, path)
        for name in ("tiny", "DeepSeek-V4.1-Flash", "First/one", ""):
            e = s.json("POST", path, {"model": name, **body}, want=404)["error"]
            equal(("model" in e["message"].lower(), e["type"] if "messages" in path[4:] else e["code"]),
                  (True, "not_found_error" if "messages" in path[4:] else "model_not_found"), (path, name))
        if path == "/tokenize":
            equal(s.json("POST", path, {"model": None, **body}), s.json("POST", path, body))
    s.stop()


def the_page_is_there():
    status, headers, body = server.call("GET", "/")
    equal((status, headers["content-type"], b"<html" in body), (200, "text/html; charset=utf-8", True))
    equal(server.call("GET", "/?x")[2], body)


def stop_strings_do_not_end_reasoning():
    """[O26] stop strings are looked for in the answer, not in what is thought before."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "What is 17 plus 25?"}], "temperature": 0, "max_tokens": 300,
            "honour_sampling": True}
    free = post("/v1/chat/completions", body)["choices"][0]["message"]
    word = free["reasoning_content"].split()[1]
    got = post("/v1/chat/completions", {**body, "stop": [word]})["choices"][0]["message"]
    equal(got["reasoning_content"], free["reasoning_content"])


def tokens_come_one_by_one():
    """[O9] with --each-token, or without drafting: an event per token, in order, none missing."""
    got = [json.loads(d) for _, d in stream("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 20, "ignore_eos": True,
                                                                "logprobs": 0, "seed": 1})[:-1]]
    n = [len(c["choices"][0]["logprobs"]["tokens"]) for c in got if c["choices"] and c["choices"][0].get("logprobs")]
    equal((sum(n), max(n)), (20, 1))


def a_client_that_leaves_frees_its_rows():
    """[O30] streaming or not, running or waiting; the blocks are those of the start."""
    start = server.wait_metric("bathyc_requests_running", lambda v: v == 0)
    blocks = server.metrics()["bathyc_kv_blocks_used"]
    for more in ({}, {"stream": True}):
        s = [server.connect() for _ in range(6)]  # four run, two wait
        for c in s:
            c.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1000, "ignore_eos": True, **more}))
        server.wait_metric("bathyc_requests_running", lambda v: v == 4)
        time.sleep(0.2)
        began = time.monotonic()
        for c in s:
            c.close()
        server.wait_metric("bathyc_requests_running", lambda v: v == 0)
        server.wait_metric("bathyc_requests_waiting", lambda v: v == 0)
        server.wait_metric("bathyc_kv_blocks_used", lambda v: v == blocks)
        took = time.monotonic() - began
        if took > slow():
            raise AssertionError(f"rows were there for {took:.2f} s")
    equal(start, 0)


def clients_that_reset_leave_nothing():
    """[O42] 200 clients read one event and reset the connection."""
    body = {"model": "tiny", "prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}
    server.wait_metric("bathyc_http_open_requests", lambda v: v <= 1)
    fds = server.n_fds()
    for i in range(scaled(200, 40)):
        s = server.connect()
        s.sendall(request("POST", "/v1/completions", body))
        s.recv(1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        s.close()
    server.wait_metric("bathyc_requests_running", lambda v: v == 0)
    server.wait_metric("bathyc_http_open_connections", lambda v: v <= 1)
    server.wait_metric("bathyc_http_open_streams", lambda v: v == 0)
    server.wait_fds(fds)
    post("/v1/chat/completions", chat(max_tokens=1))


def a_full_queue_is_429():
    tight = Server("--max-queue", "4", "--max-num-seqs", "4")
    body = {"model": "tiny", "prompt": "a", "max_tokens": 1000, "ignore_eos": True}
    held = []
    for gauge in ("running", "waiting"):  # four run, four wait
        more = [tight.connect() for _ in range(4)]
        held += more
        for c in more:
            c.sendall(request("POST", "/v1/completions", body))
        tight.wait_metric(f"bathyc_requests_{gauge}", lambda v: v == 4)
    status, headers, data = tight.call("POST", "/v1/completions", body)
    equal((status, "retry-after" in headers, json.loads(data)["error"]["code"]), (429, True, "queue_full"))
    status, _, data = tight.call("POST", "/v1/messages", {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]})
    equal((status, json.loads(data)["error"]["type"]), (429, "rate_limit_error"))
    equal(tight.metrics()["bathyc_http_refused_busy_total"], 2)
    for c in held:
        c.close()
    tight.wait_metric("bathyc_requests_running", lambda v: v == 0)
    tight.stop()


def silence_is_filled_with_comments():
    """A stream whose first token is far away says something now and then."""
    held = [server.connect() for _ in range(4)]
    for c in held:
        c.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1000, "ignore_eos": True}))
    server.wait_metric("bathyc_requests_running", lambda v: v == 4)
    with server.connect() as s:  # waits for a slot
        s.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 2, "stream": True}))
        got = b""
        while got.count(b"\n: ") + got.count(b"\r\n: ") < 1 and b"data: " not in got:
            got += s.recv(65536)
        equal(got.startswith(b"HTTP/1.1 200 OK\r\n"), True)
        equal(b": still working\n\n" in got, True, got[-200:])
    for c in held:
        c.close()
    server.wait_metric("bathyc_requests_running", lambda v: v == 0)


def long_prompts_do_not_stop_others():
    """A large body is converted beside the loop: the stream of another client goes on meanwhile."""
    big = request("POST", "/tokenize", {"prompt": "word " * 100000})
    with server.connect() as s:
        s.sendall(big)
        time.sleep(0.01)
        server.json("GET", "/version")
    e = post("/v1/chat/completions", chat("word " * 100000), 400)
    equal(e["error"]["code"], "context_length_exceeded")


def spent_ns():
    """Processor time of the server's loop, which is its first thread, and of all its threads, in ns."""
    tasks, pid = {}, server.process.pid
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
            tasks[int(tid)] = int(f.read().split()[0])
    return tasks[pid], sum(tasks.values())


def long_bodies_are_read_beside_the_loop():
    """Of what a body of some MB costs the loop has only the copying, whatever the path; and a stream beside it goes on."""
    numbers = [1] * scaled(500000, 200000)  # 1 MB that takes 40 ms to read
    item = {"type": "custom_tool_call", "call_id": "1", "name": "f", "input": "", "x": numbers}
    message = {"role": "user", "content": "a"}
    conversation = post("/v1/conversations", {})["id"]
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "tiny", "messages": [], "x": numbers}})
    data = (b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name="file"; '
            b'filename="a"\r\n\r\n' + line.encode() + b"\n\r\n--b--\r\n")
    head = f"POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(data)}\r\n\r\n"
    file = json.loads(server.raw(head.encode() + data, shut=True).partition(b"\r\n\r\n")[2])["id"]
    rows = [("/v1/chat/completions", {"model": "tiny", "messages": [], "x": numbers}, 400),
            ("/v1/responses", {"model": "none", "input": [item, message], "store": False}, 404),
            ("/v1/responses", {"model": "none", "input": [message], "x": numbers, "conversation": conversation}, 404),
            ("/v1/responses", {"model": "none", "input": [message], "x": numbers, "background": True}, 200),
            ("/v1/conversations", {"metadata": {"a": "b"}, "x": numbers}, 200),
            (f"/v1/conversations/{conversation}", {"metadata": {"a": "b"}, "x": numbers}, 200),
            (f"/v1/conversations/{conversation}/items", {"items": [message], "x": numbers}, 200),
            ("/v1/batches", {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h", "x": numbers}, 200)]
    before = spent_ns()
    post(*rows[0])
    reading = spent_ns()[1] - before[1]
    for path, body, want in rows:
        with server.connect() as s:
            s.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True}))
            began, n = spent_ns()[0], len(s.recv(65536))
            answer = post(path, body, want)
            while path == "/v1/batches" and answer["status"] != "completed":  # its line is as long
                time.sleep(0.05)
                answer = server.json("GET", f"/v1/batches/{answer['id']}")
            took = spent_ns()[0] - began
            goes_on = b"[DONE]" not in s.recv(65536)
        equal((n > 0, goes_on, took < reading / 3), (True, True, True), f"{path}: the loop took {took / 1e6:.1f} ms, reading takes {reading / 1e6:.1f}")


def company_does_not_change_answers():
    body = chat("What is 17 plus 25?", temperature=0, max_tokens=20)
    alone = without_noise(post("/v1/chat/completions", body)["choices"])
    got = []
    threads = [threading.Thread(target=lambda: got.append(without_noise(post("/v1/chat/completions", body)["choices"]))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE)
    equal(got, [alone] * 4)


if __name__ == "__main__":
    sys.exit(run([chat_whole_and_streamed_agree, reasoning_tokens_are_told, completions_whole_and_streamed_agree,
                  messages_whole_and_streamed_agree, responses_are_stored_and_gone_on_from,
                  conversations_collect_items, items_have_ids_and_come_in_pages, lists_of_files_and_batches_come_in_pages, uploads_are_read_to_their_border, a_small_store_drops_the_oldest, responses_at_once_share_a_conversation,
                  a_conversation_stays_within_the_bound, items_are_found_after_others_are_gone, long_lists_are_not_read_again,
                  background_responses_are_bounded,
                  background_responses_name_their_model, background_responses_can_be_cancelled, a_batch_waits_for_a_full_queue, files_and_batches_are_bounded,
                  history_that_comes_back_is_reused,
                  responses_whole_and_streamed_agree, thinking_switches_in_every_dialect,
                  empty_and_odd_bodies_are_400_with_a_name, odd_but_good_conversations, lengths, models_and_tokens, tasks_of_clients_that_left_are_not_done, served_names_are_taken_everywhere,
                  the_page_is_there, stop_strings_do_not_end_reasoning, tokens_come_one_by_one, a_client_that_leaves_frees_its_rows,
                  clients_that_reset_leave_nothing, a_full_queue_is_429, silence_is_filled_with_comments, long_prompts_do_not_stop_others, long_bodies_are_read_beside_the_loop,
                  company_does_not_change_answers]))
