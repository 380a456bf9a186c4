#!/usr/bin/env python3
"""Encoding speed of bathyc beside Hugging Face `tokenizers` and `tiktoken`, one thread each, in turns in one run.

    bench/tokenizer_bench.py build/bathyc --tokenizer tokenizer.json [--rounds 5] [--venv DIR]

The peers come from PyPI: they must be importable, or --venv names a folder in which a virtual environment with them is made.
The texts are made on this machine: English from licence texts and doc strings of Python's library, Chinese from message
catalogues (/usr/share/locale/zh*, else those of PyPI Django), code from Python's library. Every text is encoded in
documents of 4 kB. Before anything is timed, the ids of all three are compared. Other work on the machine disturbs the rates; the
ratios of one round are taken next to each other, and their median is printed.
"""
import argparse
import ast
import gettext
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv

PEERS = ["tokenizers==0.23.3", "tiktoken==0.14.0"]
DOC = 4096
SIZES = {"english": 950_000, "chinese": 1_370_000, "code": 1_000_000}


def in_venv(folder):
    """Makes the environment once and runs this script again inside it."""
    python = pathlib.Path(folder) / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEERS, "django"], check=True)
    os.execv(python, [str(python), *[a for a in sys.argv if a != "--venv" and a != folder and a != f"--venv={folder}"]])


# ---- texts ----

def english():
    for path in sorted(glob.glob("/usr/share/common-licenses/*")):
        if not os.path.islink(path):
            yield open(path, encoding="utf-8", errors="replace").read()
    for path in sorted(glob.glob(sysconfig.get_path("stdlib") + "/**/*.py", recursive=True)):
        if "/test" in path or "site-packages" in path:
            continue
        try:
            tree = ast.parse(open(path, encoding="utf-8").read())
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                yield ast.get_docstring(node)


def chinese():
    paths = sorted(glob.glob("/usr/share/locale/zh*/LC_MESSAGES/*.mo"))
    if len(paths) < 20:
        import django
        paths = sorted(glob.glob(os.path.dirname(django.__file__) + "/**/zh*/LC_MESSAGES/*.mo", recursive=True))
    for path in paths:
        with open(path, "rb") as f:
            try:
                messages = gettext.GNUTranslations(f)._catalog
            except (OSError, UnicodeDecodeError):
                continue
        for key, text in messages.items():
            if key and any("\u4e00" <= c <= "\u9fa5" for c in text):
                yield text


def code():
    for path in sorted(glob.glob(sysconfig.get_path("stdlib") + "/*.py")):
        yield open(path, encoding="utf-8").read()


def make_text(name):
    parts, size = [], 0
    for part in {"english": english, "chinese": chinese, "code": code}[name]():
        parts.append(part)
        size += len(part.encode()) + 1
        if size >= SIZES[name]:
            break
    return "\n".join(parts).encode()[: SIZES[name]].decode("utf-8", "ignore")


def documents(text):
    """Cut as `bathyc bench tokenizer` cuts: DOC bytes, moved forward to the next character."""
    raw, at, docs = text.encode(), 0, []
    while at < len(raw):
        end = min(at + DOC, len(raw))
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end += 1
        docs.append(raw[at:end].decode())
        at = end
    return docs


# ---- peers ----

def tiktoken_encoding(path):
    """The same vocabulary; the three splits fused into one pattern that gives the same pieces."""
    import tiktoken
    model = json.load(open(path, encoding="utf-8"))["model"]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {chr(b): b for b in printable}
    symbols |= {chr(256 + i): b for i, b in enumerate(sorted(set(range(256)) - set(printable)))}
    ranks = {bytes(symbols[c] for c in word): i for word, i in model["vocab"].items() if all(c in symbols for c in word)}
    cjk = "一-龥\u3040-ゟ゠-ヿ"
    pattern = "|".join([
        r"\p{N}{1,3}", rf"[{cjk}]+", r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
        rf"[^\r\n\p{{L}}\p{{P}}\p{{S}}{cjk}]?[[\p{{L}}\p{{M}}]&&[^{cjk}]]+", rf" ?[[\p{{P}}\p{{S}}]&&[^{cjk}]]+[\r\n]*",
        r"\s*[\r\n]+", rf"\s+(?![^\s\p{{N}}{cjk}])", r"\s+"])
    return tiktoken.Encoding("v4", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def seconds(f):
    t = time.perf_counter()
    f()
    return time.perf_counter() - t


def ours(program, tokenizer, path):
    out = subprocess.run([program, "bench", "tokenizer", "--json", "--seconds", "0", "--tokenizer", tokenizer, path],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def our_ids(program, tokenizer, docs):
    lines = "".join(json.dumps({"text": d}) + "\n" for d in docs)
    out = subprocess.run([program, "tokenize", "--jsonl", "--tokenizer", tokenizer], check=True, input=lines,
                         capture_output=True, text=True).stdout
    return [json.loads(line)["tokens"] for line in out.splitlines()]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("program")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--venv")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    if a.venv:
        in_venv(a.venv)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    import tokenizers
    hf, tt = tokenizers.Tokenizer.from_file(a.tokenizer), tiktoken_encoding(a.tokenizer)

    with tempfile.TemporaryDirectory() as folder:
        for name in SIZES:
            text = make_text(name)
            docs, size = documents(text), len(text.encode())
            path = os.path.join(folder, name)
            open(path, "wb").write(text.encode())
            want = [hf.encode(d, add_special_tokens=False).ids for d in docs]
            assert our_ids(a.program, a.tokenizer, docs) == want, f"{name}: bathyc and tokenizers give different ids"
            tiktoken_same = sum(tt.encode_ordinary(d) == w for d, w in zip(docs, want))
            rows = []
            for _ in range(a.rounds):
                b = ours(a.program, a.tokenizer, path)
                rows.append({"first": b["encode_first_bytes_per_s"] / 1e6, "again": b["encode_bytes_per_s"] / 1e6,
                             "hf": size / seconds(lambda: [hf.encode(d, add_special_tokens=False) for d in docs]) / 1e6,
                             "tiktoken": size / seconds(lambda: [tt.encode_ordinary(d) for d in docs]) / 1e6})
            best = {k: max(r[k] for r in rows) for k in rows[0]}
            ratio = {k: statistics.median(r["first"] / r[k] for r in rows) for k in ("hf", "tiktoken")}
            if a.json:
                print(json.dumps({"text": name, "bytes": size, "tokens": sum(map(len, want)), "mb_per_s": best, "ratio": ratio}))
            else:
                print(f"{name:8} {size} bytes, {sum(map(len, want))} tokens: bathyc {best['first']:.1f} MB/s first, "
                      f"{best['again']:.1f} again; tokenizers {best['hf']:.2f} ({ratio['hf']:.1f} x), "
                      f"tiktoken {best['tiktoken']:.2f} ({ratio['tiktoken']:.1f} x); tiktoken has the same ids in "
                      f"{tiktoken_same} of {len(docs)} documents", flush=True)


main()
