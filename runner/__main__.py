"""The command line: `python -m runner problems | evaluate | run | control | analyze | …`.

With `--json`, one JSON document on stdout and nothing else; progress goes to stderr. Exit status 0
means the command worked (a failing kernel is a result), 2 that the request cannot be met, 1 that
the fault is ours.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.catalog import Problem, load_all, slugs
from runner import console, evaluate, languages
from runner.evaluate import devices
from runner.evaluate.ceilings import ceilings
from runner.events import ControlAction, RunStatus
from runner.partial import Partial
from runner.results import Verdict, flat_json
from runner.spec import (
    AGENTS,
    CASE_SETS,
    OUTSIDE,
    WORKFLOWS,
    Budgets,
    EvaluationSpec,
    SpecError,
    device_kind,
    known_problem,
)
from runner.terminal import print_json, tell
from runner.tuning import Space
from runner.wire import to_json

if TYPE_CHECKING:
    from runner.analysis.levels import Levels

MAX_SOURCE_BYTES = 1024**2
OK, OUR_FAULT, BAD_REQUEST = 0, 1, 2
RUN = """Let an agent look for a faster kernel.

While it runs, its log lies in F.warpdeck.zip.partial: after a crash the same command with --resume
goes on where it ended, and `control` asks it for something. Ctrl-C stops it after the step under
way; pressed twice, at once."""
MCP = """Let your own coding agent work on a problem: its tools, by MCP over stdin and stdout.

Name this command in the agent's configuration. The run ends when the agent finishes or hangs up;
`control` and --resume work as for `run`."""
CONTROL = """Ask a run under way to pause, resume, stop, heed a note, or take other budgets.

It takes effect at the run's next step. `extend` sets new limits by --evaluations, --wall-clock,
--tokens and --dollars; those left out stay as they are."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except SpecError as error:
        if options.json:
            refusal = {"field": error.field, "problem": error.problem, "remedy": error.remedy}
            print_json({"error": refusal})
        tell(f"error: {error}")
        return BAD_REQUEST
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        raw = argparse.RawDescriptionHelpFormatter
        short = text.partition("\n")[0]
        added = commands.add_parser(name, help=short, description=text, formatter_class=raw)
        added.set_defaults(command=run, json=False)
        if name != "mcp":  # standard output is the protocol's
            added.add_argument("--json", action="store_true", help="print one JSON document")
        return added

    command("problems", _problems, "List the problems there are.")
    one = command("evaluate", _evaluate, "Compile, check and time one source file.")
    one.add_argument("problem", metavar="PROBLEM")
    one.add_argument("source", metavar="SOURCE", type=Path)
    one.add_argument("--language", help="default: by the suffix of SOURCE")
    one.add_argument("--pairs", type=int, help="timed pairs per scored case")
    whole = command("run", _run, RUN)
    whole.add_argument("problem", metavar="PROBLEM")
    whole.add_argument("--agent", help=f"one of: {', '.join(AGENTS)}; default: search")
    whole.add_argument("--model", default="", help="of an agent that asks a model")
    whole.add_argument("--effort", default="", help="of an agent that asks a model")
    whole.add_argument("--workflow", default="goal", help=f"one of: {', '.join(WORKFLOWS)}")
    whole.add_argument("--partner", metavar="AGENT[:MODEL]", help="the second agent of flame_chase")
    _add_model_budgets(whole)
    whole.add_argument("--seed", type=int, default=0, metavar="N")
    whole.add_argument(
        "--replay",
        type=Path,
        metavar="ARCHIVE",
        help="evaluate that run's candidates afresh, all of them",
    )
    served = command("mcp", _mcp, MCP)
    served.add_argument("problem", metavar="PROBLEM")
    served.set_defaults(agent=OUTSIDE, workflow="goal", seed=0, partner=None, replay=None)
    served.set_defaults(model="", effort="", tokens=None, dollars=None)
    for told in (whole, served):
        told.add_argument("--language", help="what the agent writes; default by the device")
        told.add_argument("--goal", type=float, metavar="X", help="stop at this speedup")
        _add_budgets(told, Budgets.wall_clock_s)
        told.add_argument("--resume", action="store_true", help="go on with a run that was killed")
        told.add_argument("-o", "--output", type=Path, required=True, metavar="F.warpdeck.zip")
    asked = command("control", _control, CONTROL)
    asked.add_argument("archive", type=Path, metavar="F.warpdeck.zip", help="the run's --output")
    asked.add_argument("action", choices=[action.value for action in ControlAction])
    asked.add_argument("text", nargs="*", help="of steer: what the agent should know or do")
    asked.add_argument("--by", default=_user(), metavar="NAME", help="who asks; default: you")
    _add_budgets(asked, None)
    _add_model_budgets(asked)
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
    for measured in (one, whole, served):
        measured.add_argument("--case-set", help="default: host, or gpu on a GPU")
    examined = command("lint", _lint, "Examine problems: what computes nothing must fail them.")
    examined.add_argument(
        "problem", metavar="PROBLEM", nargs="?", help="slug or folder; default: every problem"
    )
    roofs = command("ceilings", _ceilings, "Measure bandwidth and peaks of a device.")
    roofs.add_argument("--refresh", action="store_true", help="measure again")
    for measured in (one, whole, served, roofs):
        measured.add_argument("--device", default="auto", help="auto, host or cuda:0")
    return parser


def _add_budgets(command: argparse.ArgumentParser, wall_clock_s: float | None) -> None:
    """Limits of a run; without a default they are new ones, and what is left out stays."""
    many, long = "at most so many", "at most so long"
    if wall_clock_s is not None:
        many += f"; default: {Budgets.evaluations}"
        long += f"; default: {wall_clock_s:g} seconds"
    command.add_argument("--evaluations", type=int, metavar="N", help=many)
    command.add_argument(
        "--wall-clock", type=float, default=wall_clock_s, metavar="SECONDS", help=long
    )


def _add_model_budgets(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tokens", type=int, metavar="N", help="at most so many, cached ones too")
    command.add_argument("--dollars", type=float, metavar="X", help="at the prices of the models")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody at a terminal"


def _problems(options: argparse.Namespace) -> int:
    found = load_all()
    if options.json:
        print_json({"problems": [_problem_json(problem) for problem in found]})
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
    found = evaluate.evaluate(spec, progress=tell)
    if options.json:
        print_json(flat_json(found))
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
        print_json(findings.document(report.analysis))
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
        print_json(findings.document(found))
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
    try:
        from runner import launch  # and with it what only agents need
    except ModuleNotFoundError as error:
        problem = f"the package {error.name} is not installed, and agents need it."
        raise SpecError("run", problem, "Install Warpdeck with what it depends on.") from error
    _check_output(options.output)
    state = launch.run(options, _device(options.device))
    if options.json:
        print_json(launch.document(state, options.output))
    else:
        print(f"{console.run(state)}\narchive {options.output}")
    return OUR_FAULT if state.status is RunStatus.failed else OK


def _mcp(options: argparse.Namespace) -> int:
    try:
        from runner import mcp_stdio
    except ModuleNotFoundError as error:
        problem = f"the package {error.name} is not installed, and outside agents need it."
        raise SpecError("mcp", problem, "Install Warpdeck with what it depends on.") from error
    _check_output(options.output)
    state = mcp_stdio.run(options, _device(options.device))
    tell(console.run(state))
    return OUR_FAULT if state.status is RunStatus.failed else OK


def _control(options: argparse.Namespace) -> int:
    action, text = ControlAction(options.action), " ".join(options.text)
    limits = {
        "evaluations": options.evaluations,
        "wall_clock_s": options.wall_clock,
        "tokens": options.tokens,
        "dollars": options.dollars,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    if given and action is not ControlAction.extend:
        raise SpecError(next(iter(given)), "goes with extend alone.", "Leave it out.")
    if text and action is not ControlAction.steer:
        raise SpecError("text", "goes with steer alone.", "Leave it out.")
    made = Partial(options.archive).ask(action, options.by, text, given)
    if options.json:
        print_json(to_json(made))
    else:
        print(f"request {made.request}: {made.action.value}, heeded at the next step")
    return OK


def _ceilings(options: argparse.Namespace) -> int:
    device = _device(options.device)
    found = ceilings(device, refresh=options.refresh)
    if options.json:
        info = devices.device_info(device)
        print_json({"device": to_json(info), "ceilings": to_json(found)})
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
        print_json(documents[0] if options.problem else whole)
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


if __name__ == "__main__":
    sys.exit(main())
