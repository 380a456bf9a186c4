"""The vendors' own Python clients against the bundled model. Argument 1: the program."""
import json
import sys
import time

import anthropic
import openai

from http_support import DEADLINE, Server, equal, run

server = Server("--api-key", "sk-test", "--ram", "300M", "--max-model-len", "2048")
oai = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="sk-test", timeout=DEADLINE, max_retries=0)
ant = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="sk-test", timeout=DEADLINE, max_retries=0)
SUM = [{"role": "user", "content": "What is 17 plus 25?"}]
TOOL = {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
OFF = {"thinking": {"type": "disabled"}}
GREEDY = {"honour_sampling": True}  # thinking has temperature 1 else


def openai_chat():
    r = oai.chat.completions.create(model="tiny", messages=SUM, temperature=0, extra_body=OFF)
    equal((r.choices[0].message.content, r.choices[0].finish_reason), ("17 + 25 = 42.", "stop"))
    equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
    equal(r._request_id.startswith("req_"), True)
    text, usage = "", None
    for c in oai.chat.completions.create(model="tiny", messages=SUM, temperature=0, stream=True, stream_options={"include_usage": True},
                                         extra_body=OFF):
        text += (c.choices[0].delta.content or "") if c.choices else ""
        usage = c.usage or usage
    equal((text, usage.completion_tokens), ("17 + 25 = 42.", r.usage.completion_tokens))
    r = oai.chat.completions.create(model="tiny", messages=SUM, temperature=0, max_tokens=3, n=2, logprobs=True, top_logprobs=2, extra_body=OFF)
    equal((len(r.choices), len(r.choices[0].logprobs.content), r.choices[0].finish_reason), (2, 3, "length"))


def openai_tools_over_turns():
    tools = [{"type": "function", "function": TOOL}]
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    r = oai.chat.completions.create(model="tiny", messages=messages, tools=tools, temperature=0, extra_body=GREEDY, max_tokens=300)
    m = r.choices[0].message
    if r.choices[0].finish_reason == "tool_calls":
        equal(m.tool_calls[0].function.name, "get_weather")
        json.loads(m.tool_calls[0].function.arguments)
    else:  # the model is free not to call; the turns after it are what the client must be able to send
        m = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {
            "name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]}
    for turn in range(2):
        calls = m["tool_calls"] if isinstance(m, dict) else [c.model_dump() for c in m.tool_calls]
        messages += [m] + [{"role": "tool", "tool_call_id": c["id"], "content": "rain"} for c in calls]
        oai.chat.completions.create(model="tiny", messages=messages, tools=tools, temperature=0, extra_body=GREEDY, max_tokens=20)
        m = {"role": "assistant", "content": "", "tool_calls": [{"id": f"d{turn}", "type": "function", "function": {
            "name": "get_weather", "arguments": "{}"}}]}
    streamed = list(oai.chat.completions.create(model="tiny", messages=messages[:1], tools=tools, temperature=0, extra_body=GREEDY, max_tokens=300, stream=True))
    equal(streamed[-1].choices[0].finish_reason, r.choices[0].finish_reason)


def openai_completions_and_models():
    equal([m.id for m in oai.models.list()], ["DeepSeek-V4.1-Flash", "tiny"])
    equal(oai.models.retrieve("tiny").id, "tiny")
    r = oai.completions.create(model="tiny", prompt="The cat", max_tokens=5, temperature=0)
    text = "".join(c.choices[0].text for c in oai.completions.create(model="tiny", prompt="The cat", max_tokens=5, temperature=0, stream=True))
    equal(text, r.choices[0].text)


def openai_responses():
    r = oai.responses.create(model="tiny", input="What is 17 plus 25?", reasoning={"effort": "none"}, temperature=0, max_output_tokens=100)
    equal((r.output_text, r.status), ("17 + 25 = 42.", "completed"))
    again = oai.responses.retrieve(r.id)
    equal(again.output_text, r.output_text)
    r2 = oai.responses.create(model="tiny", input="And 1 plus 1?", previous_response_id=r.id, max_output_tokens=30)
    equal(r2.usage.input_tokens > r.usage.input_tokens, True)
    with oai.responses.stream(model="tiny", input="Hi", reasoning={"effort": "none"}, max_output_tokens=50) as s:
        kinds = [e.type for e in s]
        final = s.get_final_response()
    equal((kinds[0], final.status), ("response.created", "completed" if kinds[-1] == "response.completed" else "incomplete"))
    b = oai.responses.create(model="tiny", input="Hi", background=True, max_output_tokens=500)
    b = oai.responses.cancel(b.id)
    equal(b.status in ("cancelled", "completed", "incomplete"), True)
    equal(len(oai.responses.input_items.list(r.id).data), 1)
    oai.responses.delete(r.id)
    try:
        oai.responses.retrieve(r.id)
        raise AssertionError("a deleted response is there")
    except openai.NotFoundError:
        pass
    r = oai.responses.create(model="tiny", input="Hi", max_output_tokens=5, metadata={"topic": "test"})
    equal((r.metadata, oai.responses.retrieve(r.id).metadata), ({"topic": "test"}, {"topic": "test"}))


def openai_counts_what_it_would_ask():
    r = oai.responses.create(model="tiny", input="What is 17 plus 25?", max_output_tokens=100)
    equal(oai.responses.input_tokens.count(model="tiny", input="What is 17 plus 25?").input_tokens, r.usage.input_tokens)
    n = oai.responses.input_tokens.count(model="tiny", input="And?", previous_response_id=r.id).input_tokens
    equal(n, oai.responses.create(model="tiny", input="And?", previous_response_id=r.id, max_output_tokens=1).usage.input_tokens)
    equal(n > r.usage.input_tokens, True)
    for call, param in [(lambda: oai.responses.input_tokens.count(model="tiny", input="a", previous_response_id="resp_0"), "previous_response_id"),
                        (lambda: oai.responses.input_tokens.count(model="tiny", input=[]), "input"),
                        (lambda: oai.responses.retrieve(r.id, stream=True), "stream")]:
        try:
            call()
        except openai.APIStatusError as e:
            equal(e.param, param)
        else:
            raise AssertionError(f"not refused: {param}")


def openai_conversations():
    """Every call of client.conversations; items that are added and taken away count for the next response."""
    c = oai.conversations.create(items=[{"type": "message", "role": "user", "content": "My name is Ada."}], metadata={"a": "b"})
    body = {"model": "tiny", "conversation": c.id, "reasoning": {"effort": "none"}, "temperature": 0, "max_output_tokens": 20}
    first = oai.responses.create(input="Hi", **body)
    equal((oai.conversations.retrieve(c.id).id, first.conversation.id), (c.id, c.id))
    equal(oai.conversations.update(c.id, metadata={"c": "d"}).metadata, {"c": "d"})
    added = oai.conversations.items.create(c.id, items=[{"role": "user", "content": f"number {i}"} for i in range(5)])
    equal([i.content[0].text for i in added.data], [f"number {i}" for i in range(5)])
    ids = [i.id for i in oai.conversations.items.list(c.id, order="asc", limit=3)]  # in pages
    equal((len(ids), ids[-5:]), (3 + 5, [i.id for i in added.data]))
    equal(oai.conversations.items.retrieve(ids[-1], conversation_id=c.id).content[0].text, "number 4")
    with_all = oai.responses.create(input="Well?", **{**body, "store": False}).usage.input_tokens
    for i in added.data[1:]:
        equal(oai.conversations.items.delete(i.id, conversation_id=c.id).id, c.id)
    for call in (oai.conversations.items.retrieve, oai.conversations.items.delete):
        refused(openai.NotFoundError, lambda: call(ids[-1], conversation_id=c.id), "item_not_found")
    equal([i.id for i in oai.conversations.items.list(c.id, order="asc")], ids[:4])
    equal(oai.responses.create(input="Well?", **body).usage.input_tokens < with_all, True)
    oai.conversations.delete(c.id)
    for call in (lambda: oai.conversations.retrieve(c.id), lambda: oai.conversations.items.list(c.id), lambda: oai.conversations.update(c.id, metadata={})):
        refused(openai.NotFoundError, call, "conversation_not_found")


def openai_batches():
    rows = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions",
             "body": {"model": "tiny", "messages": SUM, "temperature": 9 if i == 5 else 0, "max_tokens": 20, "stream": i == 6, **OFF}}
            for i in range(20)]
    data = "\n".join(json.dumps(r) for r in rows) + "\nnot json\n"
    f = oai.files.create(file=("in.jsonl", data.encode()), purpose="batch")
    equal((f.bytes, f.filename, oai.files.content(f.id).read()), (len(data), "in.jsonl", data.encode()))
    b = oai.batches.create(input_file_id=f.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"})
    end = time.monotonic() + DEADLINE
    while b.status == "in_progress" and time.monotonic() < end:
        time.sleep(0.05)
        b = oai.batches.retrieve(b.id)
    equal((b.status, b.request_counts.completed, b.request_counts.failed, b.request_counts.total), ("completed", 19, 2, 21))
    out = [json.loads(x) for x in oai.files.content(b.output_file_id).text.splitlines()]
    equal({r["custom_id"] for r in out}, {f"r{i}" for i in range(20) if i != 5})
    equal({r["response"]["body"]["choices"][0]["message"]["content"] for r in out}, {"17 + 25 = 42."})
    bad = [json.loads(x) for x in oai.files.content(b.error_file_id).text.splitlines()]
    equal(sorted((r["custom_id"] or "", bool(r["error"])) for r in bad), [("", True), ("r5", False)])
    long = {**rows[0], "body": {**rows[0]["body"], "max_tokens": 2000, "ignore_eos": True}}
    f2 = oai.files.create(file=("b.jsonl", "\n".join(json.dumps({**long, "custom_id": str(i)}) for i in range(40)).encode()), purpose="batch")
    b2 = oai.batches.create(input_file_id=f2.id, endpoint="/v1/chat/completions", completion_window="24h")
    oai.files.delete(f2.id)
    oai.batches.cancel(b2.id)
    while oai.batches.retrieve(b2.id).status == "cancelling" and time.monotonic() < end:
        time.sleep(0.05)
    equal((oai.batches.retrieve(b2.id).status, len(oai.batches.list().data)), ("cancelled", 2))


def ended(b):
    """The batch when it has ended."""
    end = time.monotonic() + DEADLINE
    while b.status in ("in_progress", "cancelling") and time.monotonic() < end:
        time.sleep(0.02)
        b = oai.batches.retrieve(b.id)
    return b


def refused(kind, call, code=None):
    try:
        call()
    except kind as e:
        equal(code is None or e.code == code, True, e)
    else:
        raise AssertionError(f"no {kind}")


def openai_files():
    """Every call of client.files: create, list in pages, retrieve, content, delete; and what is refused."""
    made = [oai.files.create(file=(f"päge {i}.jsonl", b"%d\n" % i), purpose="batch") for i in range(5)]
    equal([f.id for f in oai.files.list(purpose="batch", limit=2, order="asc")][-5:], [f.id for f in made])  # the client fetches three pages
    equal([f.id for f in oai.files.list(limit=1)][:5], [f.id for f in made[::-1]])
    equal([f.id for f in oai.files.list(limit=3, after=made[3].id).data], [f.id for f in made[2::-1]])
    equal(oai.files.list(purpose="fine-tune").data, [])
    f = oai.files.retrieve(made[3].id)
    equal((f, f.filename, f.purpose, f.status, f.bytes, f.object), (made[3], "päge 3.jsonl", "batch", "processed", 2, "file"))
    equal(oai.files.content(f.id).read(), b"3\n")
    oai.files.wait_for_processing(f.id)
    for f in made:
        equal(oai.files.delete(f.id).deleted, True)
        for call in (oai.files.retrieve, oai.files.content, oai.files.delete):
            refused(openai.NotFoundError, lambda: call(f.id), "file_not_found")
    refused(openai.BadRequestError, lambda: oai.files.create(file=("a", b"x"), purpose="fine-tune"))
    refused(openai.BadRequestError, lambda: oai.files.list(limit=0))
    blob = bytes(range(256)) * 2000 + b"\r\n--x"  # any bytes, also such that look like a border
    f = oai.files.create(file=("blob", blob), purpose="batch")
    equal(oai.files.content(f.id).read() == blob, True)
    oai.files.delete(f.id)


def openai_batches_of_every_endpoint():
    """Results are what the endpoint itself answers; errors go into a file of their own; the input may be gone meanwhile."""
    user = [{"role": "user", "content": "What is 17 plus 25?"}]
    bodies = {"/v1/chat/completions": {"messages": user, **OFF, "temperature": 0}, "/v1/completions": {"prompt": "The cat", "temperature": 0},
              "/v1/responses": {"input": "What is 17 plus 25?", "reasoning": {"effort": "none"}}, "/v1/messages": {"messages": user, "max_tokens": 50, **OFF}}
    for endpoint, body in bodies.items():
        rows = [{"custom_id": f"ü{i}", "method": "POST", "url": endpoint, "body": {"model": "tiny", **body}} for i in range(3)]
        bad = [{**rows[0], "custom_id": "model", "body": {**rows[0]["body"], "model": "none"}}, {**rows[0], "custom_id": "url", "url": "/v1/embeddings"},
               {**rows[0], "custom_id": "get", "method": "GET"}, {"custom_id": "body", "method": "POST", "url": endpoint}]
        f = oai.files.create(file=("in.jsonl", "\n\n".join(json.dumps(r) for r in rows + bad).encode()), purpose="batch")
        b = oai.batches.create(input_file_id=f.id, endpoint=endpoint, completion_window="24h", metadata={"k": "v"})
        oai.files.delete(f.id)
        b = ended(b)
        equal((b.status, b.endpoint, b.metadata, b.input_file_id, b.completion_window), ("completed", endpoint, {"k": "v"}, f.id, "24h"))
        equal((b.request_counts.total, b.request_counts.completed, b.request_counts.failed), (7, 3, 4))
        equal(b.created_at <= b.in_progress_at <= b.finalizing_at <= b.completed_at, True)
        out = {r["custom_id"]: r for r in map(json.loads, oai.files.content(b.output_file_id).text.splitlines())}
        equal((set(out), {r["error"] for r in out.values()}, {r["response"]["status_code"] for r in out.values()}), ({"ü0", "ü1", "ü2"}, {None}, {200}))
        text = json.dumps([{k: v for k, v in r["response"]["body"].items() if k in ("choices", "output", "content")} for r in out.values()])
        equal("17 + 25 = 42." in text or endpoint == "/v1/completions", True, text)
        errors = {r["custom_id"]: r for r in map(json.loads, oai.files.content(b.error_file_id).text.splitlines())}
        equal(set(errors), {"model", "url", "get", "body"})
        equal((errors["model"]["response"]["status_code"], errors["model"]["error"]), (404, None))
        for name in ("url", "get", "body"):
            equal((errors[name]["response"], errors[name]["error"]["code"]), (None, "invalid_line"))
        equal((oai.files.retrieve(b.output_file_id).purpose, oai.files.retrieve(b.error_file_id).purpose), ("batch_output", "batch_output"))


def openai_batch_lists_and_cancel():
    row = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": "a", "max_tokens": 1500, "ignore_eos": True}}
    short = {**row, "body": {**row["body"], "max_tokens": 1}}

    def create(rows):
        f = oai.files.create(file=("b.jsonl", "\n".join(json.dumps({**r, "custom_id": str(i)}) for i, r in enumerate(rows)).encode()), purpose="batch")
        return oai.batches.create(input_file_id=f.id, endpoint="/v1/completions", completion_window="24h")
    made = [create([short]) for _ in range(5)]
    equal([b.id for b in oai.batches.list(limit=2)][:5], [b.id for b in made[::-1]])  # in pages
    equal([b.id for b in oai.batches.list(limit=2, after=made[4].id).data], [made[3].id, made[2].id])
    b = create([short] * 4 + [row] * 60)
    end = time.monotonic() + DEADLINE
    while oai.batches.retrieve(b.id).request_counts.completed < 4 and time.monotonic() < end:
        time.sleep(0.02)
    b = ended(oai.batches.cancel(b.id))
    equal((b.status, b.request_counts.total, b.completed_at, b.cancelled_at is not None), ("cancelled", 64, None, True))
    equal(4 <= b.request_counts.completed < 64, True, b.request_counts)
    equal(len(oai.files.content(b.output_file_id).text.splitlines()), b.request_counts.completed)  # what was done is kept
    equal(ended(oai.batches.cancel(made[0].id)).status, "completed", "it had ended before")
    server.wait_metric("bathyc_requests_running", lambda v: v == 0)
    for call, kind in ((lambda: oai.batches.retrieve("none"), openai.NotFoundError), (lambda: oai.batches.cancel("none"), openai.NotFoundError),
                       (lambda: oai.batches.create(input_file_id="none", endpoint="/v1/completions", completion_window="24h"), openai.BadRequestError),
                       (lambda: oai.batches.create(input_file_id=made[0].input_file_id, endpoint="/v1/embeddings", completion_window="24h"), openai.BadRequestError),
                       (lambda: oai.batches.list(limit=101), openai.BadRequestError), (lambda: oai.batches.list(after="none"), openai.BadRequestError)):
        refused(kind, call)


def openai_errors():
    wrong = openai.OpenAI(base_url=oai.base_url, api_key="nope", max_retries=0)
    for call, kind in [(lambda: wrong.models.list(), openai.AuthenticationError),
                       (lambda: oai.chat.completions.create(model="tiny", messages=[]), openai.BadRequestError),
                       (lambda: oai.chat.completions.create(model="tiny", messages=SUM, temperature=9), openai.BadRequestError),
                       (lambda: oai.chat.completions.create(model="none", messages=SUM), openai.NotFoundError),
                       (lambda: oai.models.retrieve("none"), openai.NotFoundError)]:
        try:
            call()
        except kind as e:
            equal(bool(e.message), True)
        else:
            raise AssertionError(f"no {kind}")


def openai_errors_name_their_field():
    big = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string", "pattern": "(a)\\1"}}}
    chat, responses = oai.chat.completions.create, oai.responses.create
    for call, param, code, more in [
            (chat, "messages", "empty_array", {"messages": []}),
            (chat, "messages[1].role", "invalid_value", {"messages": SUM + [{"role": "wizard", "content": "a"}]}),
            (chat, "messages[0].content", "missing_required_parameter", {"messages": [{"role": "user"}]}),
            (chat, "temperature", "invalid_value", {"messages": SUM, "temperature": 9}),
            (chat, "messages", "context_length_exceeded", {"messages": SUM, "max_tokens": 2048}),
            (chat, "response_format.json_schema.schema", "grammar_error", {"messages": SUM, "response_format": big}),
            (chat, "tools[0].function.parameters", "invalid_function_parameters",
             {"messages": SUM, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]}),
            (chat, "stop_token_ids", "invalid_value", {"messages": SUM, "extra_body": {"stop_token_ids": [10 ** 6]}}),
            (oai.completions.create, "prompt", "invalid_value", {"prompt": [10 ** 6]}),
            (oai.completions.create, "prompt", "context_length_exceeded", {"prompt": "a", "max_tokens": 2048}),
            (responses, "input", "empty_array", {"input": []}),
            (responses, "text.format.schema", "grammar_error", {"input": "a", "text": {"format": {"name": "a", **big, **big["json_schema"]}}}),
            (responses, "input", "context_length_exceeded", {"input": "a", "max_output_tokens": 2048}),
            (responses, "previous_response_id", "previous_response_not_found", {"input": "a", "previous_response_id": "resp_0"})]:
        kind = openai.NotFoundError if code == "previous_response_not_found" else openai.BadRequestError
        for streams in [{}, {"stream": True}]:
            try:
                got = list(call(model="tiny", **more, **streams))
                if call is not responses:
                    raise AssertionError(f"not refused: {more}")
                equal((got[-1].type, got[-1].param, got[-1].code), ("error", param, code), more)  # this client hands the event on
            except openai.APIError as e:  # in a stream that has begun there is no status
                equal((e.param, e.code, isinstance(e, kind) or bool(streams)), (param, code, True), more)
    for call in (lambda: oai.models.retrieve("none"), lambda: chat(model="none", messages=SUM), lambda: responses(model="none", input="a")):
        try:
            call()
        except openai.NotFoundError as e:
            equal((e.param, e.code), ("model", "model_not_found"))


def anthropic_messages():
    r = ant.messages.create(model="tiny", max_tokens=300, messages=SUM, thinking={"type": "disabled"}, extra_body={"temperature": 0})
    equal((r.content[0].text, r.stop_reason), ("17 + 25 = 42.", "end_turn"))
    n = ant.messages.count_tokens(model="tiny", messages=SUM, thinking={"type": "disabled"})
    equal(n.input_tokens, r.usage.input_tokens + (r.usage.cache_read_input_tokens or 0))
    with ant.messages.stream(model="tiny", max_tokens=300, messages=SUM, thinking={"type": "disabled"}) as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    equal(final.content[0].text, text)
    tools = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}]
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    r = ant.messages.create(model="tiny", max_tokens=300, messages=messages, tools=tools)
    calls = [b for b in r.content if b.type == "tool_use"]
    content = r.content if calls else [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}}]
    ids = [b.id for b in calls] or ["t1"]
    messages += [{"role": "assistant", "content": content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "rain"} for i in ids]}]
    ant.messages.create(model="tiny", max_tokens=20, messages=messages, tools=tools)
    for kind, call in [(anthropic.BadRequestError, lambda: ant.messages.create(model="tiny", max_tokens=5, messages=[])),
                       (anthropic.AuthenticationError, lambda: anthropic.Anthropic(base_url=ant.base_url, api_key="x", max_retries=0)
                        .messages.create(model="tiny", max_tokens=5, messages=SUM))]:
        try:
            call()
        except kind:
            pass
        else:
            raise AssertionError(f"no {kind}")


if __name__ == "__main__":
    sys.exit(run([openai_chat, openai_tools_over_turns, openai_completions_and_models, openai_responses, openai_counts_what_it_would_ask, openai_conversations, openai_batches, openai_files, openai_batches_of_every_endpoint, openai_batch_lists_and_cancel,
                  openai_errors, openai_errors_name_their_field, anthropic_messages]))
