"""Times cuBLASLt's row-wise scaled FP8 product (through torch) at the shapes of gpu_bench's gemm section, for the tables of
docs/performance-cuda.md. Needs torch with CUDA; medians of graph replays, weights rotating through 200 MB."""
import statistics

import torch

SHAPES = [("5120 -> 1792", 5120, 1792), ("1280 -> 32768", 1280, 32768), ("8192 -> 5120", 8192, 5120),
          ("5120 -> 4608", 5120, 4608), ("2304 -> 5120", 2304, 5120)]
FP8 = torch.float8_e4m3fn


def timed(f, per):
    f()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    times = []
    for _ in range(15):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / per)
    return statistics.median(times[2:])


for name, k, n in SHAPES:
    copies = min(16, 200_000_000 // (k * n) + 1)
    weights = [torch.randn(n, k, device="cuda").to(FP8) for _ in range(copies)]
    for m in (1, 16, 64, 128, 256, 1024, 4096):
        x = torch.randn(m, k, device="cuda").to(FP8)
        sx, sw = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
        run = copies if m <= 256 else 1

        def f():
            for i in range(run):
                torch._scaled_mm(x, weights[i].t(), scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16)

        print(f"cuBLASLt row-wise {name} M {m}: {timed(f, run):.1f} us", flush=True)
    del weights
