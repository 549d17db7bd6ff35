"""A turn: one step of one agent. The smallest thing after which a run can be taken up again.

Owns what an agent is told beside its brief: that calls keep failing, that nothing was called, that
its share is used. When a run ends is the workflow's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from runner import examination, prompts, stages, tools
from runner.agents import Agent, AgentFailed, ContextFull, Conversant, Proposer
from runner.conversation import BENCHMARK, CUT, REFUSED, Turn
from runner.loop import CUT_SHORT, Loop, TurnCut
from runner.stages import Stage

NUDGE_AFTER = 2  # repetitions of a failing call
STUCK_AFTER = 5
IDLE_TURNS = 3  # turns in a row that call nothing
CLOSING_TOKENS = 2_000  # fewer are not worth a request for closing words


class Progress(StrEnum):
    """Where a turn left its agent."""

    working = "working"
    finished = "finished"  # its part is done: it says so, or its share is used
    exhausted = "exhausted"  # nothing is left to try
    stuck = "stuck"  # it repeats calls that fail
    idle = "idle"  # it talks and calls nothing


def take(loop: Loop, agent: Agent, stage: Stage, ordinal: int) -> Progress:
    """Let an agent act once in the stage of that number; the first time opens its context."""
    if isinstance(agent, Proposer):
        return _propose(loop, agent)
    if loop.conversation.ordinal != ordinal:
        start(loop, agent, stage, ordinal)
        return Progress.working
    if loop.next_call is not None:
        _run_call(loop, agent, stage)
        return Progress.working
    if loop.conversation.finished or stages.over(loop):
        return Progress.finished
    if loop.conversation.repeats >= STUCK_AFTER:
        return Progress.stuck
    if loop.conversation.idle_turns >= IDLE_TURNS:
        return _idle(loop)
    if (nudge := next(_nudges(loop, stage), None)) is not None:
        loop.nudge(nudge)
        return Progress.working
    _reply(loop, agent, stage)
    return Progress.working


def start(loop: Loop, agent: Agent, stage: Stage, ordinal: int) -> None:
    """Open a stage: a fresh context, with what the one before leaves to it."""
    if isinstance(agent, Proposer):  # it reads the state alone; the brief says whose turn it is
        loop.brief(agent.name, stage.name, ordinal, prompts.text("next_candidate"))
        return
    before, share = loop.conversation, stages.share(stage)
    handed = prompts.Handed(f"{before.agent}, at the end of {before.stage}", stages.summary(loop))
    loop.brief(agent.name, stage.name, ordinal, prompts.brief(loop, stage.prompt, share, handed))


def close(loop: Loop, agent: Agent, reason: str) -> None:
    """The closing words: the agent's if it has any, and always what the harness measured."""
    if loop.state.summary is not None:
        return
    if isinstance(agent, Proposer):
        turn = Turn(agent.summarise(loop.problem, loop.state, reason))
    else:
        turn = _closing_turn(loop, agent, reason)
    words = filter(None, (turn.text.strip(), prompts.measured(loop, reason)))
    loop.summarise(agent.name, "\n\n".join(words), turn.usage)


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


def _closing_turn(loop: Loop, agent: Conversant, reason: str) -> Turn:
    """What the agent says at the end, in the time and tokens kept for it; empty for nothing."""
    loop.start_closing()
    if loop.tokens_left is not None and loop.tokens_left < CLOSING_TOKENS:
        loop.notice(f"No tokens are left for closing words of {agent.name}.")
        return Turn()
    try:
        return agent.close(loop, reason)
    except (AgentFailed, ContextFull, TurnCut) as error:
        loop.notice(f"{agent.name} had no closing words: {error}", getattr(error, "usage", None))
        return Turn()


def _run_call(loop: Loop, agent: Conversant, stage: Stage) -> None:
    assert loop.next_call is not None
    name, call = loop.next_call
    loop.begin_call(name, call)
    work = tools.Work(loop, agent.name, name)
    answer = stages.refusal(loop, stage, call) or tools.call(work, call, stage.tools)
    if loop.state.stop is None or answer != CUT_SHORT:  # else nobody reads it: the run ends
        loop.end_call(name, answer)


def _nudges(loop: Loop, stage: Stage) -> Iterator[str]:
    """What the agent is still to be told before its next turn."""
    talk = loop.conversation
    if talk.lacks_reply:
        yield prompts.text(_unanswered(loop))
    repeating, last = prompts.text("repeating"), prompts.text("last_turn")
    if talk.repeats >= NUDGE_AFTER and not talk.told_since_turn(repeating):
        yield repeating
    if BENCHMARK in stage.tools:
        yield from (text for text in _to_generalise(loop) if not talk.told(text))
    if stages.ends_with_next_turn(loop, stage) and not talk.told(last):
        yield last


def _to_generalise(loop: Loop) -> Iterator[str]:
    """Candidates that are the fastest on the first case, and were measured on no other."""
    first, best = prompts.first_case(loop).name, loop.state.best_evaluation
    beaten = 1.0
    for case in best.scored if best else ():
        if case.case == first and case.timing is not None:
            beaten = max(beaten, case.timing.ci95[0])
    for (number, scope), trial in loop.state.trials.items():
        measured = number in loop.state.evaluations
        if scope == f"case {first}" and not measured and (trial.floor or 0.0) > beaten:
            yield prompts.render("generalise", candidate=f"c{number}", case=first)


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


def _unanswered(loop: Loop) -> str:
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
    if loop.conversation.last_turn is None:
        raise AgentFailed("the brief alone does not fit the model's context")
    try:
        handed = agent.hand_over(loop, offered)
    except (TurnCut, ContextFull, AgentFailed) as error:
        loop.notice(f"{agent.name} could not hand over: {error}", getattr(error, "usage", None))
        handed = Turn()
    if handed.usage is not None:
        loop.notice("The context was full; a fresh one goes on from a summary.", handed.usage)
    giver, share = prompts.Handed("your earlier context", handed.text), stages.left(loop, stage)
    text = prompts.brief(loop, stage.prompt, share, giver)
    loop.brief(agent.name, stage.name, loop.conversation.ordinal, text)
