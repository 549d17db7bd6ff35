"""What each integrity check asks, in words for who must answer for a kernel.

The one glossary of check names: results, console and pages read titles and meanings here. What was
seen in one evaluation is the check's own `detail`; this module makes no check and judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """`title` names a check for people; `meaning` is one sentence that must hold for a pass."""

    title: str
    meaning: str


MEANINGS = {
    "fresh_inputs": Meaning(
        "Fresh inputs",
        "Inputs were drawn for this evaluation from a seed that the candidate cannot know, so no"
        " answer could be prepared.",
    ),
    "outputs_poisoned": Meaning(
        "Outputs poisoned",
        "Outputs held NaN before each call, so an element that was never written shows.",
    ),
    "inputs_unchanged": Meaning(
        "Inputs unchanged",
        "After the calls every input is bit by bit what it was before.",
    ),
    "repeat_agrees": Meaning(
        "Repeat agrees",
        "The same input gave the same answer twice, within the tolerance.",
    ),
    "timed_output_verified": Meaning(
        "Timed outputs verified",
        "Calls drawn at random from those that were timed had computed the right answer.",
    ),
    "two_clocks": Meaning(
        "Two clocks agree",
        "The time that the candidate's process reports fits what a clock outside of it saw.",
    ),
    "idle_between_calls": Meaning(
        "Idle between calls",
        "Nothing of the candidate went on working after a timed call had returned.",
    ),
    "physics": Meaning(
        "Physically possible",
        "No time is shorter than the memory and arithmetic of this device allow.",
    ),
    "device_alone": Meaning(
        "Device to itself",
        "While it was timed no other process used the GPU, or more than a tenth of a host's cores.",
    ),
    "device_steady": Meaning(
        "Device steady",
        "A fixed piece of trusted work took as long as before the candidate was loaded, so nobody"
        " slowed the baseline down.",
    ),
    "source_hash": Meaning(
        "Source is what ran",
        "What was loaded was built from the source with this hash.",
    ),
    "process_tree_clean": Meaning(
        "No process left",
        "The candidate left no process behind.",
    ),
    "output_capped": Meaning(
        "Output kept whole",
        "What the candidate printed fitted the limit, so none of it was dropped.",
    ),
}


def meaning_of(check: str) -> Meaning:
    """Of a check this version does not know, its name in words: an archive may be newer."""
    known = MEANINGS.get(check)
    return known or Meaning(check.replace("_", " ").capitalize(), "")
