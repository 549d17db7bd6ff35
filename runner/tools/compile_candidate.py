"""Compiles a candidate as an evaluation would, and says what the compiler says."""

from __future__ import annotations

from pathlib import Path

from runner import languages
from runner.answers import candidates
from runner.answers.sources import blamed_lines, excerpt
from runner.answers.text import fitted, one_line, plain
from runner.languages import CompileResult, MissingCompiler
from runner.loop import Answer
from runner.spec import Limits
from runner.tools import Work

OUTPUT_CHARACTERS = 1_500
NOT_RUN = {"triton": " Triton kernels compile when they are launched: analyze compiles them here."}


def compile_candidate(work: Work, candidate: int) -> Answer:
    """Compile a candidate with the flags of an evaluation: all errors and warnings, with lines.

    Nothing is run and no device is needed. Use it where the analysis says that it does not compile.

    Arguments:
        candidate: Its number: 3 for c3.
    """
    found = candidates.known(work.loop, candidate)
    source = work.loop.source(candidate)
    try:
        compiled = _compiled(source, found.language)
    except MissingCompiler as error:
        return Answer(
            f"Not compiled here: {error} An evaluation compiles on the device's own host."
        )
    output = plain(compiled.output).strip()
    if compiled.ok:
        more = NOT_RUN.get(found.language, "")
        said = f"\n{output[:OUTPUT_CHARACTERS]}" if output else ""
        return Answer(f"c{candidate} compiles.{more}{said}", _rest(output))
    parts = [f"c{candidate} does not compile: {one_line(compiled.reason, 500)}"]
    lines = blamed_lines(f"{compiled.reason}\n{output}")[:1]
    parts += [quoted for line in lines if (quoted := excerpt(source, line))]
    parts.append(output[:OUTPUT_CHARACTERS])
    return Answer(fitted(parts), _rest(output))


def _compiled(source: str, language: str) -> CompileResult:
    """In a private folder of the sandbox; what was built goes with it."""
    from runner.analysis.analyze import work_folder

    with work_folder() as folder:
        return languages.get(language).compile(source, Path(folder), Limits())


def _rest(output: str) -> str:
    return output if len(output) > OUTPUT_CHARACTERS else ""
