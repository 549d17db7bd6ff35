"""Claude, through the Messages API. It is asked turn by turn, and remembers nothing.

Each request is rebuilt from the log, so a run goes on where it was cut. The key is read from the
environment of this process when a request is made; it is kept nowhere and said to nobody.
"""

from __future__ import annotations

import importlib.util
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner import prompts
from runner.agents import ContextFull
from runner.conversation import REFUSED, Turn
from runner.events import Usage
from runner.loop import Loop, TurnCut
from runner.messages import pricing, transcript
from runner.messages.draft import CHARACTERS_PER_TOKEN, Draft
from runner.spec import AgentSpec
from runner.tools import Tool

if TYPE_CHECKING:
    from runner.messages.exchange import Heed, Patience

NAME = "claude"
KEY = "ANTHROPIC_API_KEY"
EFFORTS = pricing.EFFORTS
FULL = 0.7  # of the context, from which on a fresh one is opened
TURN_TOKENS = 32_000  # the longest turn, thinking included
LEAST_TOKENS = 1_024  # a shorter turn says nothing; the reserve for the closing words bears it
HANDOVER_TOKENS = 16_000  # thinking included
CLOSING_TOKENS = 4_000
CLOSING_EFFORT = "low"
UNKNOWN_CONTEXT_TOKENS = 200_000
CLOSING_S = 45.0


def create(spec: AgentSpec) -> ClaudeAgent:
    return ClaudeAgent(spec.model or pricing.DEFAULT_MODEL, spec.effort or pricing.DEFAULT_EFFORT)


def models() -> tuple[pricing.Model, ...]:
    """What a form offers, the default first; raises SpecError for a bad table of the operator."""
    known = pricing.models()
    return (
        known[pricing.DEFAULT_MODEL],
        *(m for n, m in known.items() if n != pricing.DEFAULT_MODEL),
    )


def available() -> str:
    """Why this process cannot ask Claude; empty if it can."""
    if importlib.util.find_spec("anthropic") is None:
        return "the package anthropic is not installed"
    return "" if os.environ.get(KEY) else f"{KEY} is not set"


@dataclass(frozen=True)
class ClaudeAgent:
    """`patience`, `base_url` and `context_tokens` take the place of what is usual."""

    model: str = pricing.DEFAULT_MODEL
    effort: str = pricing.DEFAULT_EFFORT
    patience: Patience | None = None
    base_url: str | None = None
    context_tokens: int = 0
    closing_s: float = CLOSING_S
    name: str = field(default=NAME, init=False)

    def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        """The next turn; ContextFull well before the API would say so."""
        messages = transcript.messages(loop)
        expected = self._expected_tokens(loop, messages)
        if loop.conversation.last_turn is not None and expected > FULL * self._window:
            raise ContextFull("the context is nearly full")
        request = self._request(messages, self._most_tokens(loop, expected), self.effort)
        request |= _setting(loop, tools)
        return self._ask(loop, request, loop.heed).turn()

    def hand_over(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        """Asked within the conversation and with its tools, so that it is read from the cache."""
        messages = transcript.messages(loop, prompts.text("handover"))
        request = self._request(messages, HANDOVER_TOKENS, self.effort) | _setting(loop, tools)
        return _words(self._ask(loop, request, loop.heed))

    def close(self, loop: Loop, reason: str) -> Turn:
        """Asked in a context of its own, in bounded time."""
        words = prompts.render("closing", reason=reason, standing=prompts.standing(loop))
        request = self._request([transcript.told(words)], CLOSING_TOKENS, CLOSING_EFFORT)
        deadline = time.monotonic() + self.closing_s

        def heed(usage: Usage | None) -> None:
            if time.monotonic() > deadline:
                raise TurnCut(f"they took more than {self.closing_s:g} s", usage)
            loop.heed(usage)

        return _words(self._ask(loop, request, heed))

    @property
    def _window(self) -> int:
        known = pricing.find(self.model)
        usual = UNKNOWN_CONTEXT_TOKENS if known is None else known.context_tokens
        return self.context_tokens or usual

    def _ask(self, loop: Loop, request: dict[str, Any], heed: Heed) -> Draft:
        from runner.messages import exchange  # here: listing agents must not cost the SDK's import

        patience = self.patience or exchange.Patience()
        return exchange.ask(loop, request, patience=patience, heed=heed, base_url=self.base_url)

    def _request(
        self, messages: list[dict[str, Any]], most_tokens: int, effort: str
    ) -> dict[str, Any]:
        known = pricing.find(self.model)
        request: dict[str, Any] = {
            "model": self.model,
            "max_tokens": most_tokens
            if known is None
            else min(most_tokens, known.max_output_tokens),
            "messages": transcript.cached(messages),
        }
        if known is None or known.thinking:
            # what a model says between its calls is part of its thinking: it is to be seen
            request["thinking"] = {"type": "adaptive", "display": "summarized"}
            request["output_config"] = {"effort": effort}
        return request

    def _expected_tokens(self, loop: Loop, messages: list[dict[str, Any]]) -> int:
        """How long the prompt will be: what the last turn ended with, and what came since."""
        usage = loop.conversation.usage
        if usage is None:
            return transcript.characters(messages) // CHARACTERS_PER_TOKEN
        since = transcript.characters(messages[-1:]) // CHARACTERS_PER_TOKEN
        return usage.context_tokens + since

    def _most_tokens(self, loop: Loop, expected: int) -> int:
        """How long the turn may get: no budget may be overrun by one turn."""
        most = TURN_TOKENS
        if loop.tokens_left is not None:
            most = min(most, loop.tokens_left - expected)
        known, limits, spent = pricing.find(self.model), loop.state.limits, loop.state.dollars
        if known is not None and limits.dollars is not None and spent is not None:
            before = loop.conversation.usage.context_tokens if loop.conversation.usage else 0
            prompt = known.dollars(0, 0, before, expected - before)  # most of it from the cache
            left = limits.dollars - spent - prompt
            most = min(most, int(left / known.rates.output * 1e6))
        return max(most, LEAST_TOKENS)


def _setting(loop: Loop, tools: tuple[Tool, ...]) -> dict[str, Any]:
    """What stands before the messages; the same all through a conversation."""
    return {"system": transcript.system(prompts.system(loop)), "tools": transcript.tools(tools)}


def _words(draft: Draft) -> Turn:
    """A reply of which only the text counts: no call, and no thinking instead of it."""
    return Turn("" if draft.stop == REFUSED else draft.text, usage=draft.usage, stop=draft.stop)
