"""A GPU's roofs: bandwidth and matrix peaks measured with torch, and the vendor's datasheet.

Owns the datasheet table and its matching by name. The measuring runs in a child process of this
module (`python -m runner.evaluate.cuda_ceilings`), so that the caller never opens a CUDA context.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from runner import processes
from runner.results import Ceiling, DeviceInfo
from runner.sandbox import ROOT

DEADLINE_S = 300.0
COPY_BYTES = 2 << 30
SMALL_COPIES_BYTES = 2 << 30  # copied in all by the graph of a small copy
MATRIX = 8192
REPETITIONS = 20
# Dense peaks of the SXM boards, TFLOP/s and TB/s; vendors often print the sparse figure, twice it.
DATASHEET = {
    "A100": {"bf16": 312, "tf32": 156, "fp32": 19.5, "memory": 2.04},
    "H100": {"bf16": 989, "tf32": 495, "fp32": 67, "fp8": 1979, "memory": 3.35},
    "H200": {"bf16": 989, "tf32": 495, "fp32": 67, "fp8": 1979, "memory": 4.8},
    "B200": {"bf16": 2250, "tf32": 1100, "fp32": 75, "fp8": 4500, "memory": 8.0},
}
OTHER_BOARDS = ("PCIe", "NVL", "GB200", "MIG", "A100-SXM4-40GB")  # same chip, other figures


def measure(device: DeviceInfo) -> tuple[Ceiling, ...]:
    return (*_measured(device), *datasheet(device.model))


def datasheet(model: str) -> tuple[Ceiling, ...]:
    """The vendor's figures for a board we have a table for; otherwise None with the reason."""
    chip = next((name for name in DATASHEET if name in model), None)
    if chip is None or any(board in model for board in OTHER_BOARDS):
        reason = f"no datasheet figures here for {model}"
        return (Ceiling("HBM", "B/s", None, "datasheet", reason),)
    roofs = []
    for key, figure in DATASHEET[chip].items():
        if key == "memory":
            detail = f"{chip} SXM datasheet"
            roofs.append(Ceiling("HBM", "B/s", figure * 1e12, "datasheet", detail))
        else:
            name = "FP32 FMA" if key == "fp32" else f"{key.upper()} tensor"
            detail = f"{chip} SXM datasheet, dense"
            roofs.append(Ceiling(name, "FLOP/s", figure * 1e12, "datasheet", detail, key))
    return tuple(roofs)


def _measured(device: DeviceInfo) -> list[Ceiling]:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": device.uuid,
    }
    if library_path := os.environ.get("LD_LIBRARY_PATH"):
        environment["LD_LIBRARY_PATH"] = library_path
    argv = [sys.executable, "-P", "-m", "runner.evaluate.cuda_ceilings"]
    finished = processes.run(
        argv, deadline_s=DEADLINE_S, output_bytes=65536, environment=environment
    )
    try:
        return [Ceiling(**item) for item in json.loads(finished.output.splitlines()[-1])]
    except (IndexError, ValueError, TypeError):
        reason = f"not measured: {finished.output.strip()[-500:] or finished.status}"
        return [Ceiling("HBM copy", "B/s", None, "measured", reason)]


def main() -> None:
    """The child: time copies and products, print the measured ceilings as one line of JSON."""
    import torch

    torch.cuda.init()
    properties = torch.cuda.get_device_properties(0)
    cache = getattr(properties, "L2_cache_size", 0) or (32 << 20)
    found = [_copy("HBM copy", min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4))]
    found.append(_copy("L2 copy", cache // 4))
    found.append(_product("BF16 tensor", "bf16", torch.bfloat16, tf32=False))
    found.append(_product("TF32 tensor", "tf32", torch.float32, tf32=True))
    found.append(_product("FP32 FMA", "fp32", torch.float32, tf32=False))
    print(json.dumps(found))


def _copy(name: str, nbytes: int) -> dict[str, Any]:
    import torch

    source = torch.ones(nbytes // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    calls = max(1, SMALL_COPIES_BYTES // nbytes)

    def copy() -> None:
        for _ in range(calls):
            target.copy_(source)

    # A small copy is over before the next is launched: a graph of many is launched once.
    seconds = _best_seconds(_graph(copy) if calls > 1 else copy) / calls
    detail = f"torch copy_ of {nbytes / 2**20:.0f} MiB, read + written bytes, best of {REPETITIONS}"
    if calls > 1:
        detail += f" graphs of {calls}"
    value = 2 * nbytes / seconds
    return {"name": name, "unit": "B/s", "value": value, "source": "measured", "detail": detail}


def _graph(call: Callable[[], None]) -> Callable[[], None]:
    """The launches of `call`, captured and replayed as one."""
    import torch

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _product(name: str, dtype: str, kind: Any, *, tf32: bool) -> dict[str, Any]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = tf32
    a = torch.randn(MATRIX, MATRIX, device="cuda").to(kind)
    b = torch.randn(MATRIX, MATRIX, device="cuda").to(kind)
    out = torch.empty_like(a)
    seconds = _best_seconds(lambda: torch.mm(a, b, out=out))
    detail = f"torch.mm {MATRIX}³ of normal values, best of {REPETITIONS}"
    return {
        "name": name,
        "unit": "FLOP/s",
        "value": 2 * MATRIX**3 / seconds,
        "source": "measured",
        "detail": detail,
        "dtype": dtype,
    }


def _best_seconds(call: Callable[[], Any]) -> float:
    import torch

    for _ in range(3):
        call()
    best = float("inf")
    for _ in range(REPETITIONS):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return best


if __name__ == "__main__":
    main()
