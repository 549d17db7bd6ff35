"""Runs of the command line: what is asked for, and driving it to its archive.

It imports what drives a run, and so what only agents need; the rest of the command line does not.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import Any

from runner import agents
from runner.agents import Agent
from runner.agents.replay import ReplayAgent
from runner.archive import Archive, read_archive, write_archive
from runner.bundle import ArchiveError
from runner.drive import Create, drive
from runner.examination import LocalExaminer
from runner.local import LocalEvaluator, TerminalControl
from runner.log import FileLog
from runner.partial import Partial
from runner.spec import (
    CASE_SETS,
    LANGUAGES,
    REPLAY,
    AgentSpec,
    Budgets,
    RunSpec,
    SpecError,
    device_kind,
)
from runner.state import RunState
from runner.terminal import Narrator, tell, tell_phase
from runner.wire import to_json


def run(options: argparse.Namespace, device: str) -> RunState:
    """Do the run that the arguments ask for; raises SpecError where it cannot be done."""
    replayed = None if options.replay is None else _replayed(options.replay)
    try:
        spec = specify(options, device, replayed)
        spec.validate()
        create = _creator(spec, replayed)
    finally:
        if replayed is not None:
            replayed.close()
    partial = open_partial(options, spec)
    with partial.held():
        return _drive(spec, partial, create)


def open_partial(options: argparse.Namespace, spec: RunSpec) -> Partial:
    """The folder of a new run, or of the one to go on with; raises SpecError if it is not there."""
    partial = Partial(options.output)
    if options.resume:
        partial.check(spec)
    else:
        partial.start()
    return partial


def document(state: RunState, archive: Path) -> dict[str, Any]:
    """What `run --json` prints of a run."""
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
                "trials": {
                    scope: trial.verdict.value
                    for (of, scope), trial in state.trials.items()
                    if of == number
                },
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
        "tokens": state.tokens,
        "dollars": state.dollars,
        "summary": state.summary,
        "best": best,
        "frontier": list(state.frontier),
        "candidates": candidates,
        "archive": str(archive),
    }


def specify(options: argparse.Namespace, device: str, replayed: Archive | None = None) -> RunSpec:
    """What the arguments ask for; raises SpecError for a contradiction. Not validated yet."""
    kind = device_kind(device)
    language, agent = LANGUAGES[kind], options.agent or "search"
    evaluations = Budgets.evaluations
    if replayed is not None:
        language, agent = replayed.manifest.spec.language, REPLAY
        evaluations = min(len(replayed.state.candidates), Budgets.MAX_EVALUATIONS)
        _check_replay(options, replayed)
    elif agent == REPLAY:
        raise SpecError("agent", "there is nothing to replay.", "Name an archive by --replay.")
    return RunSpec(
        problem=options.problem,
        device=device,
        case_set=options.case_set or CASE_SETS[kind],
        language=options.language or language,
        agent=agent,
        workflow=options.workflow,
        goal_speedup=options.goal,
        seed=options.seed,
        budgets=Budgets(
            evaluations if options.evaluations is None else options.evaluations,
            options.wall_clock,
            options.tokens,
            options.dollars,
        ),
        model=options.model,
        effort=options.effort,
        partner=_partner(options.partner),
    )


def _partner(text: str | None) -> AgentSpec | None:
    """`AGENT` or `AGENT:MODEL`."""
    if text is None:
        return None
    agent, _, model = text.partition(":")
    return AgentSpec(agent, model)


def _replayed(path: Path) -> Archive:
    try:
        return read_archive(path)
    except ArchiveError as error:
        raise SpecError("replay", f"{path}: {error.field} {error.problem}", error.remedy) from error
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise SpecError("replay", problem, "Give the path of an archive.") from error


def _check_replay(options: argparse.Namespace, replayed: Archive) -> None:
    if options.agent not in (None, REPLAY):
        raise SpecError("agent", "a replay has an agent of its own.", "Leave --agent out.")
    if options.problem != replayed.manifest.problem:
        problem = f"the archive is of a run on {replayed.manifest.problem}."
        raise SpecError("problem", problem, "Name that problem.")
    if not replayed.state.candidates:
        raise SpecError("replay", "the archive has no candidates.", "Name another one.")


def _creator(spec: RunSpec, replayed: Archive | None) -> Create:
    """How the agents are made; raises SpecError for one that cannot act in this process."""
    if replayed is not None:
        agent: Agent = ReplayAgent.of(replayed.state, replayed.read)
        return lambda player: agent
    if spec.outside:
        problem = "an outside agent connects by another command."
        raise SpecError("agent", problem, "Use `python -m runner mcp`.")
    for player in spec.players:
        if reason := agents.lacking(player.agent):
            remedy = "Provide what it needs, or choose another agent."
            raise SpecError("agent", f"{player.agent} cannot act here: {reason}.", remedy)
    return agents.create


def _drive(spec: RunSpec, partial: Partial, create: Create) -> RunState:
    """Drive to the end; the archive is written however the run ends."""
    cancel, narrator = threading.Event(), Narrator()
    control = TerminalControl(partial.requests, cancel, tell)
    control.install()
    log = partial.log(narrator.watch, narrator.overhear)
    evaluator = LocalEvaluator(cancel, tell_phase)
    try:
        drive(spec, log, evaluator, control, create=create, examiner=LocalExaminer())
    finally:
        state = conclude(partial, log)
    return state


def conclude(partial: Partial, log: FileLog) -> RunState:
    """Write the archive of a run that has ended; one that has not lies where it can go on."""
    state = RunState.from_events(log.history())
    if state.status.ended:
        write_archive(partial.output, log.history(), log.read)
        partial.remove()
        tell(f"archive {partial.output}")
    else:
        tell(f"not ended: go on with the same command and --resume; it lies in {partial.folder}")
    return state
