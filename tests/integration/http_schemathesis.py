"""schemathesis against the document that the server publishes: with the bundled model and with the null backend. Arguments: the program,
and the schemathesis program. BY_TEST_SCALE is the length in percent; BY_SEED repeats a run."""
import json
import os
import subprocess
import sys
import tempfile

from http_support import SLOW, Server, equal, run

TOOL = sys.argv[2]
SCALE = int(os.environ.get("BY_TEST_SCALE", "100"))
SEED = os.environ.get("BY_SEED", "1")
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
          "unsupported_method,allow_header_conformance,use_after_free,ensure_resource_availability")


def fitted(doc, names):
    """The document as a user who knows this server would read it: its names of models, and answers of a few tokens."""
    shared = doc["components"]["schemas"]["Shared"]["properties"]
    shared["model"] = {"enum": names}
    for schema in ("ChatRequest", "CompletionRequest", "ResponseRequest", "MessageRequest"):
        body = doc["components"]["schemas"][schema]
        for key in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
            if key in body["properties"]:
                body["properties"][key]["maximum"] = 8
        for key in ("n", "best_of"):
            if key in body["properties"]:
                body["properties"][key]["maximum"] = 3
    return doc


def check(phases, *flags):
    server = Server("--max-model-len", "256", "--response-store", "4M", *flags)
    names = [m["id"] for m in server.json("GET", "/v1/models")["data"]]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "openapi.json")
        with open(path, "w") as f:
            json.dump(fitted(server.json("GET", "/openapi.json"), names), f)
        p = subprocess.run([TOOL, "run", path, "--url", f"http://127.0.0.1:{server.port}", "--checks", CHECKS, "--seed", SEED, "--no-color",
                            "--max-examples", str(max(1, 4 * SCALE // 100)), "--suppress-health-check", "all", "--no-shrink", "--phases", phases,
                            "--request-timeout", str(30 * SLOW)], capture_output=True, text=True, cwd=d, timeout=1000 + 4 * SCALE * SLOW)
    lines = p.stdout.splitlines()
    print("\n".join("        " + x for x in (lines[-22:] if p.returncode == 0 else lines[-250:])), p.stderr[-2000:])
    equal(p.returncode, 0, "schemathesis")
    m = server.metrics()
    bad = {k: v for k, v in m.items() if k.startswith("bathyc_http_requests_total") and 'code="5' in k}
    print("        requests:", int(sum(v for k, v in m.items() if k.startswith("bathyc_http_requests_total"))))
    equal(bad, {}, "no answer of 5xx")
    server.wait_metric("bathyc_http_open_requests", lambda v: v <= 1)
    equal(server.json("POST", "/v1/completions", {"model": names[0], "prompt": "a", "max_tokens": 1})["object"], "text_completion")
    equal(server.stop(), 0)


def the_model_answers_what_is_generated():
    check("examples,coverage,fuzzing,stateful")


def the_null_backend_answers_what_is_generated():
    check("fuzzing,stateful" if SCALE <= 100 else "examples,coverage,fuzzing,stateful", "--backend", "null", "--null-rate", "0")


if __name__ == "__main__":
    sys.exit(run([the_model_answers_what_is_generated, the_null_backend_answers_what_is_generated]))
