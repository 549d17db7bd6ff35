"""A turn: one step of one agent. The smallest thing after which a run can be taken up again.

Owns what an agent is told beside its brief: that a call keeps failing, that nothing was called.
When a run ends is the workflow's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from runner import examination, prompts, tools
from runner.agents import Agent, AgentFailed, ContextFull, Conversant, Proposer
from runner.conversation import CUT, REFUSED, Turn
from runner.loop import CUT_SHORT, Loop, TurnCut

NUDGE_AFTER = 3  # failures of one and the same call in a row
STUCK_AFTER = 6
IDLE_TURNS = 3  # turns in a row that call nothing


@dataclass(frozen=True)
class Stage:
    """A part of a workflow: `prompt` names the file of its brief, `tools` what may be called."""

    name: str
    prompt: str
    tools: tuple[str, ...]


class Progress(StrEnum):
    """Where a turn left its agent."""

    working = "working"
    finished = "finished"  # it says that its part is done
    exhausted = "exhausted"  # nothing is left to try
    stuck = "stuck"  # it repeats a call that fails
    idle = "idle"  # it talks and calls nothing


def take(loop: Loop, agent: Agent, stage: Stage, ordinal: int) -> Progress:
    """Let an agent act once in the stage of that number; the first time opens its context."""
    if isinstance(agent, Proposer):
        return _propose(loop, agent)
    if loop.conversation.ordinal != ordinal:
        loop.brief(agent.name, stage.name, ordinal, prompts.brief(loop, stage.prompt))
        return Progress.working
    if loop.next_call is not None:
        return _run_call(loop, agent, stage)
    if loop.conversation.finished:
        return Progress.finished
    if loop.conversation.idle_turns >= IDLE_TURNS:
        return _idle(loop)
    if loop.conversation.lacks_reply:
        loop.nudge(prompts.text(_nudge(loop)))
        return Progress.working
    _reply(loop, agent, stage)
    return Progress.working


def close(loop: Loop, agent: Agent, reason: str) -> None:
    """The closing words; those of the harness where the agent has none."""
    if loop.state.summary is not None:
        return
    if isinstance(agent, Proposer):
        loop.summarise(agent.name, agent.summarise(loop.problem, loop.state, reason))
        return
    measured = prompts.measured(loop, reason)
    loop.closing_s = 0.0  # the time that was kept back is for this
    try:
        turn = agent.close(loop, reason)
    except (AgentFailed, ContextFull, TurnCut) as error:
        loop.notice(f"{agent.name} had no closing words: {error}", getattr(error, "usage", None))
        turn = Turn()
    words = f"{turn.text.strip()}\n\n{measured}" if turn.text.strip() else measured
    loop.summarise(agent.name, words, turn.usage)


def _propose(loop: Loop, agent: Proposer) -> Progress:
    """Evaluate what waits for it, or have the next candidate proposed."""
    if loop.state.pending:
        number = loop.state.pending[0]
        examination.analyze(loop, number)
        loop.announce_evaluation(number)
        loop.evaluate(number)
        return Progress.working
    proposal = agent.propose(loop.problem, loop.state)
    if proposal is None:
        return Progress.exhausted
    loop.submit(agent.name, proposal)
    return Progress.working


def _run_call(loop: Loop, agent: Conversant, stage: Stage) -> Progress:
    assert loop.next_call is not None
    name, call = loop.next_call
    loop.begin_call(name, call)
    work = tools.Work(loop, agent.name, name)
    answer = tools.call(work, call, stage.tools)
    if loop.state.stop is not None and answer == CUT_SHORT:
        return Progress.working  # the run ends; nobody reads what the call would have answered
    loop.end_call(name, answer)
    if loop.conversation.failing >= STUCK_AFTER:
        return Progress.stuck
    if loop.conversation.failing == NUDGE_AFTER:
        loop.nudge(prompts.text("repeating"))
    return Progress.working


def _reply(loop: Loop, agent: Conversant, stage: Stage) -> None:
    offered = tuple(tools.get(name) for name in stage.tools)
    try:
        turn = agent.reply(loop, offered)
    except TurnCut as cut:
        loop.notice(f"The turn was given up: {cut}.", cut.usage)
    except ContextFull:
        _start_afresh(loop, agent, stage, offered)
    else:
        loop.take_turn(agent.name, turn)


def _nudge(loop: Loop) -> str:
    """The prompt for an agent whose last turn called nothing."""
    return {REFUSED: "refused", CUT: "cut"}.get(_stop(loop), "idle")


def _idle(loop: Loop) -> Progress:
    if _stop(loop) == REFUSED:
        raise AgentFailed("the model refused, and went on refusing when it was asked again")
    return Progress.idle


def _stop(loop: Loop) -> str:
    """Why the last turn ended, in the model's words."""
    last = loop.conversation.last_turn
    return "" if last is None else loop.turn(last.sha256).stop


def _start_afresh(
    loop: Loop, agent: Conversant, stage: Stage, offered: tuple[tools.Tool, ...]
) -> None:
    """The same stage in a fresh context: the brief, what is measured, and what the agent says."""
    if not loop.conversation.entries:
        raise AgentFailed("the brief alone does not fit the model's context")
    try:
        handed = agent.hand_over(loop, offered)
    except (TurnCut, ContextFull, AgentFailed) as error:
        loop.notice(f"{agent.name} could not hand over: {error}", getattr(error, "usage", None))
        handed = Turn()
    if handed.usage is not None:
        loop.notice("The context was full; a fresh one goes on from a summary.", handed.usage)
    text = prompts.brief(loop, stage.prompt, handed.text)
    loop.brief(agent.name, stage.name, loop.conversation.ordinal, text)
