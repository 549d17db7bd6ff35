"""Words for what partitions do: single steps, and the way to a violation, for people to read.

Owns sentences only; which step is to blame is decided in `protocol_explain`.
"""

from __future__ import annotations

from runner.analysis.protocol_events import Event, Kind, Program, View
from runner.analysis.protocol_search import Fault, Step, Violation


def barrier_name(event: Event) -> str:
    return event.barrier.name if event.barrier else "a barrier"


def _names(views: tuple[View, ...]) -> str:
    return " and ".join(dict.fromkeys(view.name for view in views)) or "registers"


def deed(event: Event) -> str:
    """The step as a clause without a subject."""
    match event.kind:
        case Kind.tma_load | Kind.cp_async:
            return f"starts a copy into {_names(event.writes)}"
        case Kind.tma_store:
            return f"starts a copy out of {_names(event.reads)}"
        case Kind.write:
            return f"writes {_names(event.writes)}"
        case Kind.read:
            return f"reads {_names(event.reads)}"
        case Kind.mma:
            return f"starts a product of {_names(event.reads)}"
        case Kind.tc_mma:
            return f"starts a product of {_names(event.reads)} into {_names(event.writes)}"
        case Kind.init:
            return f"initialises {barrier_name(event)} for {event.amount}"
        case Kind.inval:
            return f"invalidates {barrier_name(event)}"
        case Kind.expect:
            return f"arrives at {barrier_name(event)} and expects {event.amount} bytes"
        case Kind.arrive:
            times = f" {event.amount} times" if event.amount > 1 else ""
            return f"arrives at {barrier_name(event)}{times}"
        case Kind.wait:
            return f"waits for parity {event.parity} of {barrier_name(event)}"
        case Kind.tc_commit | Kind.cp_arrive:
            return f"lets {barrier_name(event)} be signalled when what it started is done"
        case Kind.fence:
            return "fences ordinary stores"
        case Kind.mma_wait | Kind.store_wait | Kind.cp_wait:
            left = f" but {event.amount}" if event.amount else ""
            return f"waits for all{left} of what it started"
        case Kind.cp_commit:
            return "closes a group of copies"
        case Kind.fork:
            return "starts the worker partitions"
        case Kind.rejoin:
            return "waits for the worker partitions"


def story(program: Program, violation: Violation) -> list[str]:
    """The trace and what goes wrong after it, one sentence a step."""
    sentences: list[str] = []
    inits: list[Event] = []
    for step in (*violation.trace, None):
        if step is not None and step.event.kind is Kind.init:
            inits.append(step.event)
            continue
        if inits:
            sentences.append(_initialised(program, inits))
            inits = []
        if step is not None:
            sentences.append(_sentence(program, step))
    return [*sentences, *_ending(program, violation)]


def _initialised(program: Program, inits: list[Event]) -> str:
    names = dict.fromkeys((e.barrier.buffer.name if e.barrier else "", e.amount) for e in inits)
    what = ", ".join(f"{name} for {amount}" for name, amount in names)
    return f"{_where(program, inits[0])}: initialises {what}"


def _where(program: Program, event: Event) -> str:
    line = f", line {event.line}" if event.source else ""
    return f"{program.processes[event.process].name}{line}"


def _sentence(program: Program, step: Step) -> str:
    event = step.event
    ended = _ended_phases(step)
    if step.completes:
        started = _where(program, event)
        return f"what {started} started is done" + ended
    return f"{_where(program, event)}: {deed(event)}{_passes(step)}{ended}"


def _passes(step: Step) -> str:
    """Why a wait lets its partition go on."""
    if step.event.kind is not Kind.wait or step.event.barrier is None:
        return ""
    phase = step.before.phases[step.barrier]
    if phase is None or not phase.completed:
        return ", which a fresh barrier passes"
    return f", and phase {phase.completed - 1} has ended"


def _ended_phases(step: Step) -> str:
    if step.barrier < 0:
        return ""
    before, after = step.before.phases[step.barrier], step.after.phases[step.barrier]
    if before and after and after.completed > before.completed:
        return f"; phase {before.completed} of {barrier_name(step.event)} ends"
    return ""


def _ending(program: Program, violation: Violation) -> list[str]:
    event, other = violation.event, violation.other
    if violation.fault is Fault.stuck:
        pairs = zip(program.processes, violation.state.pcs, strict=True)
        stuck = [p.events[pc] for p, pc in pairs if 0 <= pc < len(p.events)]
        return [f"{_where(program, e)}: {deed(e)}, for ever" for e in stuck]
    if violation.fault is Fault.busy_at_end:
        return [f"the kernel ends; what {_where(program, event)} started may still run"]
    because = f", though {_where(program, other)} {deed(other)}" if other else ""
    return [f"{_where(program, event)}: {deed(event)}{because}"]
