"""Child process: compiles launches of one Triton module for sm_90 and prints what the code holds.

    python -m tests.kernels.check_compiled MODULE < LAUNCHES

LAUNCHES is a JSON list of {kernel, arguments, constants, num_warps, num_stages}. Pointers and sizes
count as multiples of 16, as the launcher finds them for the contract's large cases.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.kernels.check_simulated import module_with

HOPPER = GPUTarget("cuda", 90, 32)
INSTRUCTIONS = {
    "wide_loads": r"ld\.global\S*\.v4\.b32|cp\.async\.cg\S* \[[^,]*, \[[^,]*, 0x10",
    "wide_stores": r"st\.global\S*\.v4\.b32",
    "warp_group_products": r"wgmma\.mma_async",
    "warp_products": r"mma\.sync",
    "bulk_copies": r"cp\.async\.bulk\.tensor",
    "async_copies": r"cp\.async\.c[ag]",
}


def compile_launch(module: Any, launch: dict[str, Any]) -> dict[str, int]:
    function = getattr(module, launch["kernel"])
    names, constants = function.arg_names, launch["constants"]
    signature = {n: "constexpr" if n in constants else launch["arguments"][n] for n in names}
    multiples = {
        (position,): [["tt.divisibility", 16]]
        for position, name in enumerate(names)
        if signature[name].startswith(("*", "i32"))
    }
    values = {(names.index(name),): value for name, value in constants.items()}
    options = {key: launch[key] for key in ("num_warps", "num_stages")}
    source = ASTSource(function, signature, constexprs=values, attrs=multiples)
    built = triton.compile(source, target=HOPPER, options=options)
    counts = {key: len(re.findall(text, built.asm["ptx"])) for key, text in INSTRUCTIONS.items()}
    stack = stack_bytes(built.asm["cubin"])
    return {**counts, "shared": int(built.metadata.shared), "stack_bytes": stack}


def stack_bytes(cubin: bytes) -> int:
    """Bytes of local memory per thread, from the resource report of the CUDA binary."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        report = subprocess.run(command, capture_output=True, text=True, check=True)
    return max(int(size) for size in re.findall(r"STACK:(\d+)", report.stdout))


def main(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        module = module_with(Path(path).read_text(encoding="utf-8"), Path(folder))
        for launch in json.load(sys.stdin):
            print(json.dumps(compile_launch(module, launch)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
