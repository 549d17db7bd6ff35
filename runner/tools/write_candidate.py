"""Writes a new candidate: a whole source file with its idea."""

from __future__ import annotations

import hashlib

from runner import examination
from runner.answers import analyses, candidates
from runner.answers.text import lines_of
from runner.loop import Answer, Loop, Proposal
from runner.spec import SpecError
from runner.tools import Work

SOURCE_CHARACTERS = 128 * 1024
IDEA_CHARACTERS = 500


def write_candidate(work: Work, source: str, idea: str, parent: int | None = None) -> Answer:
    """Write a candidate: a whole source file in the language of this run.

    It is numbered and analysed at once, and the answer says what the analysis found. Nothing is
    measured: call check or benchmark for that. For a small change edit_candidate is cheaper.

    Arguments:
        source: The whole file, as the contract asks for it.
        idea: What is changed against the parent and why that should pay, in one sentence.
        parent: The number of the candidate that it descends from; leave it out if there is none.
    """
    if parent is not None:
        candidates.known(work.loop, parent, "parent")
    return submit(work, Proposal(source, work.loop.spec.language, parent, idea))


def submit(work: Work, proposal: Proposal) -> Answer:
    """Log a proposal of a tool call once, analyse it, and say what was found.

    Raises SpecError for a source or an idea that cannot be a candidate's.
    """
    loop = work.loop
    if work.call not in loop.state.made_by:
        _require_idea(proposal.idea)
        _require_source(loop, proposal.source)
    number = loop.submit(work.author, proposal, call=work.call)
    parent = f" from c{proposal.parent}" if proposal.parent else ""
    note = f"c{number} is written{parent}: {len(lines_of(proposal.source)):,} lines."
    return analyses.report(loop, examination.analyze(loop, number), note)


def _require_idea(idea: str) -> None:
    if not idea.strip():
        raise SpecError("idea", "is empty.", "Say in one sentence what is new and why it pays.")
    if len(idea) > IDEA_CHARACTERS:
        problem = f"has {len(idea):,} characters."
        raise SpecError("idea", problem, f"Say it in one sentence, at most {IDEA_CHARACTERS}.")


def _require_source(loop: Loop, source: str) -> None:
    if not source.strip():
        raise SpecError("source", "is empty.", "Give the whole file.")
    if len(source) > SOURCE_CHARACTERS:
        problem = f"has {len(source):,} characters."
        raise SpecError("source", problem, f"The longest that is taken has {SOURCE_CHARACTERS:,}.")
    digest = hashlib.sha256(source.encode()).hexdigest()
    for number, other in loop.state.candidates.items():
        if other.source_sha256 == digest:
            problem = f"is that of c{number}, to the character."
            raise SpecError("source", problem, f"Go on with c{number}, or change something.")
