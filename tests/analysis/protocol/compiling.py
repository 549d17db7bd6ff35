"""Compiles a kernel of this corpus with no GPU, as far as TTGIR.

A file of the corpus holds a Gluon function `kernel`, its helpers, and ARGUMENTS: for each parameter
a type (`i32:16` is a length that the launch knows to be a multiple of 16), a (dtype, block) pair
for a tensor descriptor, or the value of a compile-time constant; CAPABILITY where it is not sm_90.
Its first line is `# clean` or `# <kind of finding> at line <n>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import triton.experimental.gluon.language as gl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.experimental.gluon._runtime import GluonASTSource

from runner.evaluate.modules import module_at

FOLDER = Path(__file__).parent
MULTIPLE = ":16"
FILES = sorted(FOLDER.glob("*/*.py"))


def ttgir(path: Path) -> str:
    """The text of the kernel's module with its source lines. Raises what the compiler raises."""
    module = module_at(path, f"protocol_corpus_{path.stem}")
    types = {name: _type(argument) for name, argument in module.ARGUMENTS.items()}
    constants = {
        name: argument for name, argument in module.ARGUMENTS.items() if isinstance(argument, int)
    }
    divisible = {
        (position,): [["tt.divisibility", 16]]
        for position, text in enumerate(types.values())
        if text.startswith("*") or text.endswith(MULTIPLE)
    }
    types = {name: text.removesuffix(MULTIPLE) for name, text in types.items()}
    source = GluonASTSource(module.kernel, types, constants, divisible)
    return compiled(source, getattr(module, "CAPABILITY", 90))


def compiled(source: GluonASTSource, capability: int) -> str:
    """Only the stages up to TTGIR: the text is not worth waiting for ptxas."""
    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    options = backend.parse_options({"num_warps": 4, **source.parse_options()})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    module = source.make_ir(
        target,
        options,
        backend.get_codegen_implementation(options),
        backend.get_module_map(),
        context,
    )
    return str(stages["ttgir"](module, {}).str())


def _type(argument: str | int | tuple[str, list[int]]) -> str:
    if isinstance(argument, str):
        return argument
    if isinstance(argument, int):
        return "constexpr"
    dtype, block = argument
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
    return f"tensordesc<{dtype}{block},{layout!r}>"
