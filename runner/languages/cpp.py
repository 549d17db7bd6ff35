"""C++ for the host CPU: one file becomes one shared object. Owns g++ and its flags."""

from __future__ import annotations

import functools
import platform
import shutil
import threading
from pathlib import Path

from runner import processes
from runner.languages.compilation import CompileResult, MissingCompiler, replace_once, run_tool
from runner.spec import Limits

LANGUAGE = "cpp"
SUFFIX = ".cpp"
LEXER = "cpp"

# No -ffast-math: a candidate that wants reordered sums writes them, so that its error is its own.
FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
    "-std=c++20",
)


def set_constants(source: str, constants: dict[str, int]) -> str:
    """Rewrite `constexpr int NAME = 4;`, one declaration a line."""
    for name, value in constants.items():
        declaration = rf"[ \t]*(?:(?:static|inline)[ \t]+)*constexpr[ \t]+int[ \t]+{name}"
        source = replace_once(source, name, rf"^({declaration}[ \t]*=[ \t]*)(-?\d+)[ \t]*;", value)
    return source


def compile(
    source: str, folder: Path, limits: Limits, *, cancel: threading.Event | None = None
) -> CompileResult:
    """g++ in the sandbox, in a folder of this candidate alone: a source can include any file."""
    compiler = _compiler()
    path, artifact = folder / f"candidate{SUFFIX}", folder / "candidate.so"
    path.write_text(source, encoding="utf-8")
    argv = [compiler, *FLAGS, "-fdiagnostics-color=never", path.name, "-o", artifact.name]
    finished = run_tool(argv, folder, limits, cancel)
    versions = {"g++": version(compiler), "flags": " ".join(FLAGS)}
    output = finished.output.replace(f"{folder}/", "")
    if finished.timed_out:
        reason = f"g++ was stopped after {limits.compile_s:g} s"
        return CompileResult(False, None, f"{output}\n{reason}", versions, reason)
    if finished.status != 0 or not artifact.exists():
        return CompileResult(False, None, output, versions, _first_error(output))
    return CompileResult(True, artifact, output, versions)


@functools.cache
def version(compiler: str) -> str:
    """The compiler's own first line, as `g++ (Debian 12.2.0-14) 12.2.0`."""
    finished = processes.run([compiler, "--version"], deadline_s=20, output_bytes=4096)
    return finished.output.partition("\n")[0].strip()


def _compiler() -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        remedy = "Install it, for example: apt-get install g++."
        raise MissingCompiler(f"g++ is not on the PATH of {platform.node()}.", remedy)
    return compiler


def _first_error(output: str) -> str:
    telling = ("error", "out of memory")
    lines = [
        line.strip() for line in output.splitlines() if any(w in line.lower() for w in telling)
    ]
    return lines[0] if lines else "g++ failed and said nothing about an error"
