"""What an exception of a candidate means: its kind, its words, and the line to look at.

Runs in the analysis child, where the exception is. A line is that of the candidate's file.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from runner.analysis import standin
from runner.analysis.captured import Trouble, TroubleKind
from runner.analysis.levels import ptx_lines

MESSAGE_CHARACTERS = 600
LIMIT_CHARACTERS = 120  # torch explains at length how to install CUDA
_PTXAS = re.compile(r"\bline (\d+); (?:error|fatal)\s*: ([^\n]*)")


def trouble_of(error: BaseException, stage: TroubleKind, artifact: str, ptx: str) -> Trouble:
    """`stage` is what was being done, `ptx` what ptxas was last given and refused."""
    traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename == artifact]
    line = own[-1] if own else None
    message = f"{type(error).__name__}: {error}".partition("\n")[0][:MESSAGE_CHARACTERS]
    if isinstance(error, CompilationError):
        return _compilation(error, Path(artifact), line)
    if isinstance(error, PTXASError):
        return _ptxas(error, ptx, message, line)
    if isinstance(error, OutOfResources):
        return Trouble(TroubleKind.resources, message, line)
    if any(_compiles(frame) for frame in frames):
        return Trouble(TroubleKind.compile, message, line)
    if _is_limit(error):
        words = f"the stand-in device cannot do this: {message[:LIMIT_CHARACTERS]}"
        return Trouble(TroubleKind.limit, words, line)
    return Trouble(stage, message, line)


def _compiles(frame: traceback.FrameSummary) -> bool:
    return frame.name == "compile" and frame.filename.endswith("/compiler/compiler.py")


def _is_limit(error: BaseException) -> bool:
    """Whether it is our device that falls short, not the candidate."""
    if isinstance(error, standin.Unsupported | MemoryError):
        return True
    return any(word in str(error) for word in ("CUDA", "NVIDIA driver", "can't allocate memory"))


def _compilation(error: CompilationError, artifact: Path, line: int | None) -> Trouble:
    """A kernel that calls a helper wraps the helper's error in its own: the innermost counts."""
    while isinstance(error.__cause__, CompilationError):
        error = error.__cause__
    cause = error.__cause__
    words = error.error_message or (f"{type(cause).__name__}: {cause}" if cause else str(error))
    found = _line_in_kernel(error, artifact)
    return Trouble(TroubleKind.compile, words[:MESSAGE_CHARACTERS], found or line)


def _line_in_kernel(error: CompilationError, artifact: Path) -> int | None:
    """Triton counts lines from the `def` of the function; the file has them from its first line."""
    if error.src is None or not hasattr(error.node, "lineno"):
        return None
    first = error.src.split("\n", 1)[0].strip()
    for number, text in enumerate(artifact.read_text().splitlines(), 1):
        if text.strip() == first:
            return number + error.node.lineno - 1
    return None


def _ptxas(error: PTXASError, ptx: str, message: str, line: int | None) -> Trouble:
    """ptxas names lines of PTX; inline assembly is what it usually refuses."""
    found = _PTXAS.search(str(error))
    if found is None:
        return Trouble(TroubleKind.compile, message, line)
    place = ptx_lines(ptx).get(int(found[1]))
    return Trouble(TroubleKind.compile, f"ptxas: {found[2].strip()}", place or line)
