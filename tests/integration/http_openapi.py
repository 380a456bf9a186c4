"""The document at /openapi.json against real answers: every operation answers as it says (http_support checks each answer of each test
against it), whole and streamed, good and bad, and no operation is left out."""
import json
import sys
import time

from http_support import DEADLINE, Server, chat, contract, equal, run

server = Server("--response-store", "16M")
TOOL = {"name": "look", "description": "Looks", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}
FORM = (b'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz\r\nContent-Disposition: form-data; name="file"; '
        b'filename="in.jsonl"\r\n\r\n')


def call(method, path, body=None, want=200, headers=None):
    status, _, data = server.call(method, path, body, headers)
    equal(status, want, (method, path, body, data[:300]))
    return data


def both(path, body):
    call("POST", path, body)
    call("POST", path, {**body, "stream": True})


def the_document_is_served():
    status, headers, data = server.call("GET", "/openapi.json")
    equal((status, headers["content-type"], json.loads(data)), (200, "application/json", contract.doc))
    loading = Server(wait=False)  # open and there from the first moment
    equal(loading.call("GET", "/openapi.json")[0], 200)
    loading.process.kill()


def answers_of_the_model():
    both("/v1/chat/completions", chat(max_tokens=8, logprobs=True, top_logprobs=2, n=2))
    both("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, "logprobs": True,
                                  "stream_options": None})
    call("POST", "/v1/chat/completions", chat(max_tokens=8, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}))
    both("/v1/chat/completions", chat(max_tokens=60, tools=[{"type": "function", "function": TOOL}], tool_choice="required"))
    both("/v1/completions", {"model": "tiny", "prompt": ["a", [300, 301]], "max_tokens": 5, "logprobs": 2, "echo": True})
    both("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 5})
    both("/v1/messages", {"model": "tiny", "max_tokens": 30, "messages": [{"role": "user", "content": "Hi"}]})
    both("/v1/messages", {"model": "tiny", "max_tokens": 60, "messages": [{"role": "user", "content": "Hi"}], "thinking": {"type": "disabled"},
                          "tools": [{"name": "look", "input_schema": TOOL["parameters"]}], "tool_choice": {"type": "tool", "name": "look"}})
    both("/v1/responses", {"model": "tiny", "input": "Hi", "max_output_tokens": 30, "store": False})
    both("/v1/responses", {"model": "tiny", "input": "Hi", "max_output_tokens": 60, "reasoning": {"effort": "none"}, "top_logprobs": 1,
                           "tools": [{"type": "function", **TOOL}], "tool_choice": "required", "instructions": "Be short.", "user": "u"})


def stored_things():
    r = json.loads(call("POST", "/v1/responses", {"model": "tiny", "input": "Hi", "max_output_tokens": 5}))
    for path in (f"/v1/responses/{r['id']}", f"/v1/responses/{r['id']}/input_items"):
        call("GET", path)
        call("GET", path.replace(r["id"], "none"), want=404)
    call("POST", f"/v1/responses/{r['id']}/cancel", {})
    call("DELETE", f"/v1/responses/{r['id']}")
    b = json.loads(call("POST", "/v1/responses", {"model": "tiny", "input": "Hi", "background": True, "ignore_eos": True}))
    call("POST", f"/v1/responses/{b['id']}/cancel", {})
    call("GET", f"/v1/responses/{b['id']}")
    c = json.loads(call("POST", "/v1/conversations", {"items": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}))
    call("POST", "/v1/responses", {"model": "tiny", "input": "Hi", "max_output_tokens": 5, "conversation": c["id"]})
    call("GET", f"/v1/conversations/{c['id']}")
    call("GET", f"/v1/conversations/{c['id']}/items")
    call("POST", f"/v1/conversations/{c['id']}", {"metadata": {"a": "b"}})
    call("POST", f"/v1/conversations/{c['id']}", {}, 400)
    added = json.loads(call("POST", f"/v1/conversations/{c['id']}/items", {"items": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]}))
    call("POST", f"/v1/conversations/{c['id']}/items", {"items": []}, 400)
    call("GET", f"/v1/conversations/{c['id']}/items/{added['first_id']}")
    call("DELETE", f"/v1/conversations/{c['id']}/items/{added['first_id']}")
    call("GET", f"/v1/conversations/{c['id']}/items/{added['first_id']}", want=404)
    call("DELETE", f"/v1/conversations/{c['id']}")


def files_and_batches():
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": "a", "max_tokens": 2}})
    f = json.loads(call("POST", "/v1/files", FORM + line.encode() + b"\r\n--xyz--\r\n", headers={"Content-Type": "multipart/form-data; boundary=xyz"}))
    call("POST", "/v1/files", b"x", 400)
    b = json.loads(call("POST", "/v1/batches", {"input_file_id": f["id"], "endpoint": "/v1/completions", "completion_window": "24h", "metadata": {"a": "b"}}))
    call("POST", "/v1/batches", {"input_file_id": f["id"]}, 400)
    end = time.monotonic() + DEADLINE
    while json.loads(call("GET", f"/v1/batches/{b['id']}"))["status"] == "in_progress" and time.monotonic() < end:
        time.sleep(0.02)
    call("POST", f"/v1/batches/{b['id']}/cancel", {})
    for path in ("/v1/batches", "/v1/files", "/v1/files?purpose=batch", f"/v1/files/{f['id']}", f"/v1/files/{f['id']}/content"):
        call("GET", path)
    call("DELETE", f"/v1/files/{f['id']}")


def texts_and_state():
    call("POST", "/v1/messages/count_tokens", {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]})
    call("POST", "/v1/responses/input_tokens", {"model": "tiny", "input": "Hi"})
    call("POST", "/tokenize", {"prompt": "Hi"})
    call("POST", "/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})
    call("POST", "/detokenize", {"tokens": [300]})
    for path in ("/v1/models", "/v1/models/tiny", "/health", "/ready", "/version", "/metrics", "/openapi.json", "/"):
        call("GET", path)
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/responses/input_tokens",
                 "/v1/messages/count_tokens", "/tokenize", "/detokenize"):
        call("POST", path, b"{", 400)
        call("POST", path, {"model": "none"}, 404 if path in ("/v1/responses", "/v1/responses/input_tokens", "/detokenize") else 400)  # the others lack a field


def no_operation_is_left_out():
    want = {(method, p, kind) for p, ops in contract.doc["paths"].items() for method, op in ops.items() if method != "parameters"
            for kind in contract.follow(op["responses"]["200"])["content"]}
    equal(want - {(m, p, kind) for m, p, status, kind in contract.seen if status == 200}, set(), "without a good answer")


def a_wrong_answer_is_found():
    """The checker itself: an answer with a member missing, one too many, of another type."""
    status, headers, data = server.call("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1})
    good = json.loads(data)
    for bad in ({k: v for k, v in good.items() if k != "id"}, {**good, "x": 1}, {**good, "created": "now"}, {**good, "choices": [{}]}, {**good, "object": "list"}):
        try:
            contract.check("POST", "/v1/completions", status, headers, json.dumps(bad).encode())
        except AssertionError:
            continue
        raise AssertionError(f"taken: {bad}")
    for args in (("POST", "/v1/completions", 201, headers, data), ("GET", "/health", 200, {"content-type": "text/plain"}, b"ok"),
                 ("POST", "/v1/completions", 500, headers, data)):
        try:
            contract.check(*args)
        except AssertionError:
            continue
        raise AssertionError(f"taken: {args}")


if __name__ == "__main__":
    sys.exit(run([the_document_is_served, answers_of_the_model, stored_things, files_and_batches, texts_and_state, no_operation_is_left_out,
                  a_wrong_answer_is_found]))
