"""The command line: `python -m runner problems | evaluate | run | analyze | simulate | …`.

With `--json`, one JSON document on stdout and nothing else; progress goes to stderr. Exit status 0
means the command worked (a failing kernel is a result), 2 that the request cannot be met, 1 that
the fault is ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.catalog import Problem, load_all, slugs
from runner import console, evaluate, languages
from runner.archive import write_archive
from runner.drive import drive
from runner.evaluate import devices
from runner.evaluate.ceilings import ceilings
from runner.events import Event, RunStatus
from runner.local import LocalEvaluator, TerminalControl
from runner.log import FileLog
from runner.results import Verdict, flat_json
from runner.spec import (
    AGENTS,
    LANGUAGES,
    Budgets,
    EvaluationSpec,
    RunSpec,
    SpecError,
    device_kind,
    known_problem,
)
from runner.state import RunState
from runner.tuning import Space
from runner.wire import to_json

if TYPE_CHECKING:
    from runner.analysis.levels import Levels

CASE_SETS = {"host": "host", "cuda": "gpu"}
MAX_SOURCE_BYTES = 1024**2
OK, OUR_FAULT, BAD_REQUEST = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except SpecError as error:
        if options.json:
            refusal = {"field": error.field, "problem": error.problem, "remedy": error.remedy}
            _print_json({"error": refusal})
        _tell(f"error: {error}")
        return BAD_REQUEST
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=run)
        added.add_argument("--json", action="store_true", help="print one JSON document")
        return added

    command("problems", _problems, "List the problems there are.")
    one = command("evaluate", _evaluate, "Compile, check and time one source file.")
    one.add_argument("problem", metavar="PROBLEM")
    one.add_argument("source", metavar="SOURCE", type=Path)
    one.add_argument("--language", help="default: by the suffix of SOURCE")
    one.add_argument("--pairs", type=int, help="timed pairs per scored case")
    whole = command("run", _run, "Let an agent search for a faster kernel.")
    whole.add_argument("problem", metavar="PROBLEM")
    whole.add_argument("--agent", default="search", help=f"one of: {', '.join(AGENTS)}")
    whole.add_argument("--language", help="what the agent writes; default by the device")
    whole.add_argument("--evaluations", type=int, default=Budgets.evaluations, metavar="N")
    whole.add_argument("--goal", type=float, metavar="X", help="stop at this speedup")
    whole.add_argument(
        "--wall-clock", type=float, default=Budgets.wall_clock_s, metavar="S", help="seconds"
    )
    whole.add_argument("--seed", type=int, default=0, metavar="N")
    whole.add_argument("-o", "--output", type=Path, required=True, metavar="F.warpdeck.zip")
    analyzed = command(
        "analyze", _analyze, "Compile for a GPU that is not there; say what is slow."
    )
    analyzed.add_argument("problem", metavar="PROBLEM")
    analyzed.add_argument("source", metavar="SOURCE", type=Path)
    analyzed.add_argument("--arch", default="sm_90", help="sm_80, 86, 89, 90, 100 or 120")
    analyzed.add_argument("--case", metavar="NAME", help="default: the first scored GPU case")
    analyzed.add_argument(
        "--levels", metavar="FOLDER", type=Path, help="write TTIR … SASS of every kernel there"
    )
    simulated = command(
        "simulate", _simulate, "Run kernels in an interpreter that watches every access to memory."
    )
    simulated.add_argument("problem", metavar="PROBLEM")
    simulated.add_argument("source", metavar="SOURCE", type=Path)
    simulated.add_argument("--case", metavar="NAME", help="default: the smallest odd GPU case")
    for measured in (one, whole):
        measured.add_argument("--case-set", help="default: host, or gpu on a GPU")
    examined = command("lint", _lint, "Examine problems: what computes nothing must fail them.")
    examined.add_argument(
        "problem", metavar="PROBLEM", nargs="?", help="slug or folder; default: every problem"
    )
    roofs = command("ceilings", _ceilings, "Measure bandwidth and peaks of a device.")
    roofs.add_argument("--refresh", action="store_true", help="measure again")
    for measured in (one, whole, roofs):
        measured.add_argument("--device", default="auto", help="auto, host or cuda:0")
    return parser


def _problems(options: argparse.Namespace) -> int:
    found = load_all()
    if options.json:
        _print_json({"problems": [_problem_json(problem) for problem in found]})
    else:
        print(console.problems(found))
    return OK


def _evaluate(options: argparse.Namespace) -> int:
    problem = known_problem(options.problem)
    device = _device(options.device)
    spec = EvaluationSpec(
        problem=problem.slug,
        source=_source(options.source),
        language=options.language or _language_of(options.source),
        device=device,
        case_set=options.case_set or CASE_SETS[device_kind(device)],
    )
    if options.pairs is not None:
        spec = replace(spec, pairs=options.pairs)
    found = evaluate.evaluate(spec, progress=_tell)
    if options.json:
        _print_json(flat_json(found))
    else:
        print(console.evaluation(found))
    return OUR_FAULT if found.verdict is Verdict.harness_error else OK


def _analyze(options: argparse.Namespace) -> int:
    from runner.analysis import analyze, findings  # imports numpy, which no other command needs

    source = _source(options.source)
    spec = analyze.AnalysisSpec(
        problem=options.problem,
        source=source,
        language="cuda" if options.source.suffix == ".cu" else _language_of(options.source),
        target=options.arch,
        case=options.case,
        file=options.source.name,
    )
    report = analyze.analyze(spec)
    if options.levels is not None:
        _write_levels(report.levels, options.levels)
    if options.json:
        _print_json(findings.document(report.analysis))
    else:
        print(console.analysis(report.analysis, source))
    return OK


def _simulate(options: argparse.Namespace) -> int:
    from runner.analysis import findings, simulate  # imports numpy, which no other command needs

    source = _source(options.source)
    spec = simulate.SimulationSpec(
        problem=options.problem,
        source=source,
        language=_language_of(options.source),
        case=options.case,
        file=options.source.name,
    )
    found = simulate.simulate(spec)
    if options.json:
        _print_json(findings.document(found))
    else:
        print(console.analysis(found, source))
    return OK


def _write_levels(found: Iterable[Levels], folder: Path) -> None:
    """One file a level; kernels of one name, compiled twice, are told apart by number."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, levels in enumerate(found, 1):
            stem = f"{number}-{levels.kernel}.{levels.target}"
            for level in levels.levels:
                (folder / f"{stem}.{level.name}").write_text(level.text, encoding="utf-8")
            if levels.binary:
                (folder / f"{stem}.cubin").write_bytes(levels.binary)
    except OSError as error:
        problem = f"{folder} cannot be written: {error.strerror}."
        raise SpecError("levels", problem, "Name a folder that is writable.") from error


def _run(options: argparse.Namespace) -> int:
    device = _device(options.device)
    spec = RunSpec(
        problem=options.problem,
        device=device,
        case_set=options.case_set or CASE_SETS[device_kind(device)],
        language=options.language or LANGUAGES[device_kind(device)],
        agent=options.agent,
        goal_speedup=options.goal,
        seed=options.seed,
        budgets=Budgets(options.evaluations, options.wall_clock),
    )
    spec.validate()
    _check_output(options.output)
    state = _drive(spec, options.output)
    if options.json:
        _print_json(_run_json(state, options.output))
    else:
        print(f"{console.run(state)}\narchive {options.output}")
    return OUR_FAULT if state.status is RunStatus.failed else OK


def _drive(spec: RunSpec, output: Path) -> RunState:
    """Drive to the end; the archive is written whatever happens on the way."""
    cancel = threading.Event()
    control = TerminalControl(cancel, _tell)
    control.install()
    with tempfile.TemporaryDirectory(prefix="warpdeck-run-") as folder:
        log = FileLog(Path(folder), str(uuid.uuid4()), watch=_tell_step)
        try:
            drive(spec, log, LocalEvaluator(cancel, _tell_phase), control)
        finally:
            write_archive(output, log.history(), log.read)
            _tell(f"archive {output}")
        return RunState.from_events(log.history())


def _ceilings(options: argparse.Namespace) -> int:
    device = _device(options.device)
    found = ceilings(device, refresh=options.refresh)
    if options.json:
        info = devices.device_info(device)
        _print_json({"device": to_json(info), "ceilings": to_json(found)})
    else:
        print(console.ceilings(found))
    return OK


def _lint(options: argparse.Namespace) -> int:
    from runner import lint  # imports torch, which takes seconds and no other command needs

    names = [options.problem] if options.problem else slugs()
    reports = []
    for name in names:
        reports.append(lint.lint(lint.folder_of(name)))
        if not options.json:
            print(console.lint(reports[-1]), end="\n\n", flush=True)
    if options.json:
        documents = [to_json(report) for report in reports]
        admissible = all(report.admissible for report in reports)
        whole = {"admissible": admissible, "problems": documents}
        _print_json(documents[0] if options.problem else whole)
    return OK


def _device(wanted: str) -> str:
    """`auto` is the first GPU, or the host where there is none."""
    if wanted != "auto":
        device_kind(wanted)
        return wanted
    gpus = [name for name in devices.available_devices() if device_kind(name) == "cuda"]
    return gpus[0] if gpus else "host"


def _source(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SOURCE_BYTES + 1)
        if len(content) > MAX_SOURCE_BYTES:
            problem = f"{path} is larger than {MAX_SOURCE_BYTES} bytes."
            raise SpecError("source", problem, "Give one source file of a kernel.")
        return content.decode()
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise SpecError("source", problem, "Give the path of a source file.") from error
    except UnicodeDecodeError as error:
        raise SpecError("source", f"{path} is not UTF-8 text.", "Save it as UTF-8.") from error


def _language_of(path: Path) -> str:
    try:
        return languages.for_suffix(path.suffix).LANGUAGE
    except LookupError as error:
        raise SpecError("source", str(error.args[0]), "Or name it with --language.") from error


def _check_output(path: Path) -> None:
    """Refuse before hours of driving what could not be written after them."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        problem = f"{path} cannot be written."
        raise SpecError("output", problem, "Name a file in a folder that exists and is writable.")


def _problem_json(problem: Problem) -> dict[str, Any]:
    document: dict[str, Any] = to_json(problem)
    names = {kernel.language for kernel in problem.zoo}
    document["settings"] = {name: Space.of(problem, name).size for name in sorted(names)}
    for kernel in document["zoo"]:
        kernel["path"] = kernel["path"].name
    return document


def _run_json(state: RunState, archive: Path) -> dict[str, Any]:
    candidates = []
    for number, candidate in state.candidates.items():
        found = state.evaluations.get(number)
        candidates.append(
            {
                **to_json(candidate),
                "verdict": found.verdict.value if found else None,
                "reason": found.reason if found else "not evaluated",
                "speedup": found.speedup if found else None,
                "ci95": list(found.ci95) if found and found.ci95 else None,
            }
        )
    best = None if state.best is None else candidates[state.best - 1]
    return {
        "run": state.run,
        "status": state.status.value,
        "reason": state.reason,
        "spec": to_json(state.spec),
        "evaluations": state.evaluations_used,
        "wall_clock_s": state.wall_clock_s,
        "best": best,
        "frontier": list(state.frontier),
        "candidates": candidates,
        "archive": str(archive),
    }


def _tell_step(event: Event) -> None:
    line = console.step(event)
    if line is not None:
        _tell(line)


def _tell_phase(phase: str) -> None:
    if sys.stderr.isatty():
        _tell(f"    {phase}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_json(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False))


if __name__ == "__main__":
    sys.exit(main())
