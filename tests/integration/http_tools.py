"""Tools over HTTP with the vendors' own Python clients: the bundled model calls them. Every choice of tools, several turns, calls in
parallel, streams, in all three APIs. Argument 1: the program."""
import json
import sys

import anthropic
import openai

from http_support import DEADLINE, Server, equal, run

# Exact numerics: the calls are then likely by a wide margin, and the same on every processor.
server = Server("--max-model-len", "2048", "--honour-sampling", "--numerics", "exact")
oai = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", timeout=DEADLINE, max_retries=0)
ant = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", timeout=DEADLINE, max_retries=0)
WEATHER = {"name": "get_weather", "description": "Weather of a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
ADD = {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                                                            "required": ["a", "b"]}}
CHAT_TOOLS = [{"type": "function", "function": t} for t in (WEATHER, ADD)]
RESPONSE_TOOLS = [{"type": "function", **t} for t in (WEATHER, ADD)]
CLAUDE_TOOLS = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in (WEATHER, ADD)]
OSLO, BOTH, SUM = "What is the weather in Oslo?", "What is the weather in Oslo and Paris?", "What is 17 plus 25?"
IN_OSLO, IN_PARIS = ("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})
OFF = {"thinking": {"type": "disabled"}}


def user(text):
    return [{"role": "user", "content": text}]


def refused(kind, call, part):
    try:
        call()
    except kind.BadRequestError as e:
        equal(part in str(e), True, str(e))
    else:
        raise AssertionError(f"taken; want a refusal that names {part}")


# ---- Chat Completions ----

def chat_once(messages, think=False, **more):
    """Whole and streamed: (text, reasoning, [(name, arguments)], finish); both must agree."""
    body = {"model": "tiny", "messages": messages, "tools": CHAT_TOOLS, "temperature": 0, "max_tokens": 300, "extra_body": {} if think else OFF, **more}
    r = oai.chat.completions.create(**body)
    m, calls, finish = r.choices[0].message, {}, None
    whole = (m.content or "", getattr(m, "reasoning_content", None) or "", [(c.function.name, json.loads(c.function.arguments)) for c in m.tool_calls or []],
             r.choices[0].finish_reason)
    text = reasoning = ""
    for chunk in oai.chat.completions.create(**body, stream=True):
        d = chunk.choices[0].delta
        text += d.content or ""
        reasoning += getattr(d, "reasoning_content", None) or ""
        finish = chunk.choices[0].finish_reason or finish
        for c in d.tool_calls or []:
            if c.index not in calls:
                equal((c.index, bool(c.id), c.type, bool(c.function.name), c.function.arguments), (len(calls), True, "function", True, ""))
                calls[c.index] = [c.function.name, "", 0, c.id]
            else:
                equal((c.id, c.type, c.function.name), (None, None, None), "only the first delta of a call names it")
                calls[c.index][1] += c.function.arguments
                calls[c.index][2] += 1
    equal((text, reasoning, [(n, json.loads(a)) for n, a, _, _ in calls.values()], finish), whole, "streamed and whole")
    equal(all(n_deltas >= 3 for _, _, n_deltas, _ in calls.values()), True, "arguments come as they are made")
    ids = [c.id for c in m.tool_calls or []] + [c[3] for c in calls.values()]
    equal(len(set(ids)), len(ids), "ids of calls")
    return (*whole, r)


def chat_choices():
    for think in (False, True):
        for more in ({}, {"tool_choice": "auto"}):
            equal(chat_once(user(OSLO), think, **more)[2:4], ([IN_OSLO], "tool_calls"), more)
            equal(chat_once(user(SUM), think, **more)[2:4], ([], "stop"), more)
        equal(chat_once(user(OSLO), think, tool_choice="none")[2:4], ([], "stop"))
    named = {"type": "function", "function": {"name": "add"}}
    equal(chat_once(user(SUM), tool_choice="required")[3], "tool_calls")
    equal(chat_once(user(SUM), tool_choice=named)[2:4], ([("add", {"a": 17, "b": 25})], "tool_calls"))
    _, _, calls, finish, _ = chat_once(user(OSLO), tool_choice=named)
    equal(([n for n, _ in calls], {type(v) for _, a in calls for v in a.values()}, finish), (["add"], {int}, "tool_calls"))
    text, reasoning, calls, finish, _ = chat_once(user(SUM), True, tool_choice=named)  # thinks first, then has to call
    equal((len(reasoning) > 0, text, [n for n, _ in calls], finish), (True, "", ["add"], "tool_calls"))
    equal({type(v) for _, a in calls for v in a.values()}, {int})
    text, reasoning, calls, finish, _ = chat_once(user(OSLO), True, tool_choice="required")
    equal((len(reasoning) > 0, text, calls, finish), (True, "", [IN_OSLO], "tool_calls"))
    refused(openai, lambda: chat_once(user(OSLO), tool_choice={"type": "function", "function": {"name": "sing"}}), "sing")
    refused(openai, lambda: chat_once(user(OSLO), tools=CHAT_TOOLS + CHAT_TOOLS[:1]), "unique")


def chat_in_parallel():
    for think in (False, True):
        equal(chat_once(user(BOTH), think)[2:4], ([IN_OSLO, IN_PARIS], "tool_calls"))
        text, _, calls, finish, r = chat_once(user(BOTH), think, parallel_tool_calls=False)
        equal((calls, finish), ([IN_OSLO], "tool_calls"))
    equal(chat_once(user(BOTH), parallel_tool_calls=False, tool_choice="required")[2], [IN_OSLO])


def chat_over_turns():
    """Results go back, in the order of the calls and in the other one; the reasoning too; what came before is found in the cache."""
    for think in (False, True):
        prompts = []
        for results in (["rainy", "sunny"], ["sunny", "rainy"]):
            messages = user(BOTH)
            _, _, _, _, r = chat_once(messages, think)
            m = r.choices[0].message
            answers = [{"role": "tool", "tool_call_id": c.id, "content": x} for c, x in zip(m.tool_calls, ["rainy", "sunny"])]
            messages += [m.model_dump(exclude_none=True)] + (answers if results[0] == "rainy" else answers[::-1])
            text, _, calls, finish, r = chat_once(messages, think)
            equal((calls, finish, bool(text), "rain" in text or "sun" in text), ([], "stop", True, True), text)
            prompts.append(r.usage.prompt_tokens)
            messages += [{"role": "assistant", "content": text}] + user("What is the weather in Rome?")
            _, _, calls, finish, r = chat_once(messages, think)
            equal((calls, finish), ([("get_weather", {"city": "Rome"})], "tool_calls"))
            cached = r.usage.prompt_tokens_details.cached_tokens
            equal(cached >= prompts[-1] // 128 * 128, True, f"{cached} of {prompts[-1]}")
        equal(prompts[0], prompts[1], "results are put into the order of their calls")
    refused(openai, lambda: chat_once(user(OSLO) + [{"role": "tool", "tool_call_id": "none", "content": "x"}]), "tool")


def chat_stream_helper():
    """The client's own collector of streams, which checks the order of events."""
    with oai.chat.completions.stream(model="tiny", messages=user(BOTH), tools=CHAT_TOOLS, temperature=0, extra_body=OFF) as s:
        kinds = [e.type for e in s]
        final = s.get_final_completion()
    equal([c.function.name for c in final.choices[0].message.tool_calls], ["get_weather"] * 2)
    equal(kinds.count("tool_calls.function.arguments.done"), 2)


# ---- Responses ----

def respond(**more):
    body = {"model": "tiny", "tools": RESPONSE_TOOLS, "temperature": 0, "max_output_tokens": 300, "reasoning": {"effort": "none"}, **more}
    r = oai.responses.create(**body)
    with oai.responses.stream(**body) as s:
        events = list(s)
        final = s.get_final_response()

    def plain(x):
        return [(i.type, getattr(i, "name", None), json.loads(i.arguments) if i.type == "function_call" else None) for i in x.output]
    equal((plain(final), final.status), (plain(r), r.status), "streamed and whole")
    deltas = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    equal(deltas, "".join(i.arguments for i in r.output if i.type == "function_call"))
    return r, [(i.name, json.loads(i.arguments)) for i in r.output if i.type == "function_call"]


def responses_choices():
    equal(respond(input=OSLO)[1], [IN_OSLO])
    equal(respond(input=OSLO, tool_choice="none")[1], [])
    equal(len(respond(input=SUM, tool_choice="required")[1]) > 0, True)
    equal(respond(input=SUM, tool_choice={"type": "function", "name": "add"})[1], [("add", {"a": 17, "b": 25})])
    equal([n for n, _ in respond(input=SUM, reasoning={"effort": "high"}, tool_choice={"type": "function", "name": "add"})[1]], ["add"])
    equal(respond(input=BOTH)[1], [IN_OSLO, IN_PARIS])
    r, calls = respond(input=BOTH, parallel_tool_calls=False)
    equal((calls, r.parallel_tool_calls, r.status), ([IN_OSLO], False, "completed"))


def responses_over_turns():
    """By previous_response_id, and with all items sent back: the same prompt."""
    for effort in ("none", "low"):
        think = {"reasoning": {"effort": effort}}
        r, calls = respond(input=BOTH, **think)
        equal(calls, [IN_OSLO, IN_PARIS])
        outputs = [{"type": "function_call_output", "call_id": i.call_id, "output": x} for i, x in
                   zip([i for i in r.output if i.type == "function_call"], ["rainy", "sunny"])]
        a, calls = respond(input=outputs, previous_response_id=r.id, **think)
        equal((calls, bool(a.output_text)), ([], True))
        equal(a.usage.input_tokens_details.cached_tokens >= r.usage.input_tokens // 128 * 128, True)
        by_hand = [{"role": "user", "content": BOTH}] + [i.model_dump(exclude_none=True) for i in r.output] + outputs
        b, _ = respond(input=by_hand, store=False, **think)
        equal((b.usage.input_tokens, b.output_text), (a.usage.input_tokens, a.output_text))
        listed = oai.responses.input_items.list(a.id, order="asc").data
        equal([i.type for i in listed], ["function_call_output"] * 2)
        refused(openai, lambda: respond(input=outputs[:1], previous_response_id=r.id, **think), "No tool output found")
        refused(openai, lambda: respond(input=outputs[:1] * 2, previous_response_id=r.id, **think), "Duplicate")


# ---- Messages ----

def message(messages, **more):
    body = {"model": "tiny", "messages": messages, "tools": CLAUDE_TOOLS, "max_tokens": 300, "thinking": {"type": "disabled"}, "extra_body": {"temperature": 0},
            **more}
    r = ant.messages.create(**body)
    with ant.messages.stream(**body) as s:
        kinds = [e.type for e in s]
        final = s.get_final_message()

    def plain(x):
        return [(b.type, getattr(b, "name", None), getattr(b, "input", None), getattr(b, "text", None)) for b in x.content]
    equal((plain(final), final.stop_reason), (plain(r), r.stop_reason), "streamed and whole")
    equal(kinds.count("content_block_stop"), len(r.content))
    return r, [(b.name, b.input) for b in r.content if b.type == "tool_use"]


def messages_choices():
    equal(message(user(OSLO))[1], [IN_OSLO])
    r, calls = message(user(SUM), tool_choice={"type": "auto"})
    equal((calls, r.stop_reason), ([], "end_turn"))
    equal(message(user(OSLO), tool_choice={"type": "none"})[1], [])
    r, calls = message(user(SUM), tool_choice={"type": "any"})
    equal((len(calls) > 0, r.stop_reason), (True, "tool_use"))
    equal(message(user(SUM), tool_choice={"type": "tool", "name": "add"})[1], [("add", {"a": 17, "b": 25})])
    equal(message(user(BOTH))[1], [IN_OSLO, IN_PARIS])
    for kind in ("auto", "any"):
        r, calls = message(user(BOTH), tool_choice={"type": kind, "disable_parallel_tool_use": True})
        equal((calls, r.stop_reason), ([IN_OSLO], "tool_use"))
    refused(anthropic, lambda: message(user(OSLO), tool_choice={"type": "tool", "name": "sing"}), "sing")


def messages_over_turns():
    for think in ({}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
        messages = user(BOTH)
        r, calls = message(messages, **think)
        equal((calls, r.stop_reason), ([IN_OSLO, IN_PARIS], "tool_use"))
        if think:
            equal((r.content[0].type, bool(r.content[0].thinking)), ("thinking", True))
        ids = [b.id for b in r.content if b.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": i, "content": x} for i, x in zip(ids, ["rainy", [{"type": "text", "text": "sunny"}]])]
        messages += [{"role": "assistant", "content": r.content}, {"role": "user", "content": results}]
        r, calls = message(messages, **think)
        equal((calls, r.stop_reason, any(b.type == "text" and b.text for b in r.content)), ([], "end_turn", True))
        n = ant.messages.count_tokens(model="tiny", messages=messages, tools=CLAUDE_TOOLS, thinking=think.get("thinking", OFF["thinking"]))
        equal(n.input_tokens, r.usage.input_tokens + r.usage.cache_read_input_tokens)
        messages += [{"role": "assistant", "content": r.content}] + user("What is the weather in Rome?")
        equal(message(messages, **think)[1], [("get_weather", {"city": "Rome"})])
        refused(anthropic, lambda: message(messages[:2] + [{"role": "user", "content": results[:1]}]), "tool")


if __name__ == "__main__":
    sys.exit(run([chat_choices, chat_in_parallel, chat_over_turns, chat_stream_helper, responses_choices, responses_over_turns, messages_choices,
                  messages_over_turns]))
