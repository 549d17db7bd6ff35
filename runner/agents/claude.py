"""Claude, through the Messages API. It is asked turn by turn, and remembers nothing.

Each request is rebuilt from the log, so a run goes on where it was cut. The key is read from the
environment of this process when a request is made; it is kept nowhere and said to nobody.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner import prompts
from runner.agents import ContextFull
from runner.conversation import REFUSED, Turn
from runner.loop import Loop
from runner.messages import KEY, pricing, transcript
from runner.messages.draft import Draft
from runner.spec import AgentSpec
from runner.tools import Tool

if TYPE_CHECKING:
    from runner.messages.exchange import Patience

NAME = "claude"
FULL = 0.7  # of the context, from which on a fresh one is opened
TURN_TOKENS = 32_000  # the longest turn, thinking included
DEEP_TURN_TOKENS = 64_000  # of the efforts that think most
DEEP = ("xhigh", "max")
LEAST_TOKENS = 1_024  # a shorter turn says nothing; the reserve for the closing words bears it
HANDOVER_TOKENS = 16_000  # thinking included
CLOSING_TOKENS = 4_000
CLOSING_EFFORT = "low"
UNKNOWN_CONTEXT_TOKENS = 200_000
CLOSING_S = 45.0


def create(spec: AgentSpec) -> ClaudeAgent:
    return ClaudeAgent(spec.model or pricing.DEFAULT_MODEL, spec.effort or pricing.DEFAULT_EFFORT)


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
        messages, setting = transcript.messages(loop), _setting(loop, tools)
        prompt = _expected(loop, messages, setting)
        if loop.conversation.last_turn is not None and prompt.tokens > FULL * self._window:
            raise ContextFull("the context is nearly full")
        usual = DEEP_TURN_TOKENS if self.effort in DEEP else TURN_TOKENS
        request = self._request(messages, self._most_tokens(loop, usual, prompt), self.effort)
        return self._ask(loop, request | setting).turn()

    def hand_over(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        """Asked within the conversation and with its tools, so that it is read from the cache."""
        messages = transcript.messages(loop, prompts.text("handover"))
        setting = _setting(loop, tools)
        most = self._most_tokens(loop, HANDOVER_TOKENS, _expected(loop, messages, setting))
        return _words(self._ask(loop, self._request(messages, most, self.effort) | setting))

    def close(self, loop: Loop, reason: str) -> Turn:
        """Asked in a context of its own, which costs little however long the run was."""
        words = prompts.render("closing", reason=reason, standing=prompts.standing(loop))
        messages = [transcript.told(words)]
        most = self._most_tokens(loop, CLOSING_TOKENS, _Prompt(0, transcript.tokens(messages)))
        return _words(self._ask(loop, self._request(messages, most, CLOSING_EFFORT)))

    @property
    def _window(self) -> int:
        known = pricing.find(self.model)
        usual = UNKNOWN_CONTEXT_TOKENS if known is None else known.context_tokens
        return self.context_tokens or usual

    def _ask(self, loop: Loop, request: dict[str, Any]) -> Draft:
        from runner.messages import exchange  # here: listing agents must not cost the SDK's import

        return exchange.ask(loop, request, self.patience or exchange.Patience(), self.base_url)

    def _request(
        self, messages: list[dict[str, Any]], most_tokens: int, effort: str
    ) -> dict[str, Any]:
        known = pricing.find(self.model)
        request: dict[str, Any] = {
            "model": self.model,
            "max_tokens": min(most_tokens, known.max_output_tokens if known else most_tokens),
            "messages": transcript.cached(messages),
        }
        if known is None or known.thinking:
            # what a model says between its calls is part of its thinking: it is to be seen
            request["thinking"] = {"type": "adaptive", "display": "summarized"}
            request["output_config"] = {"effort": effort}
        return request

    def _most_tokens(self, loop: Loop, usual: int, prompt: _Prompt) -> int:
        """How long the reply may get: one reply alone may not overrun a budget."""
        most = usual
        if loop.tokens_left is not None:
            most = min(most, loop.tokens_left - prompt.tokens)
        known, limits, spent = pricing.find(self.model), loop.state.limits, loop.state.dollars
        if known is not None and limits.dollars is not None and spent is not None:
            asking = known.dollars(0, 0, prompt.cached, prompt.fresh)
            each = known.dollars(0, 1, prompt.cached, prompt.fresh) - asking
            if each > 0:  # a model of one's own may be free
                most = min(most, int((limits.dollars - spent - asking) / each))
        return max(most, LEAST_TOKENS)


@dataclass(frozen=True)
class _Prompt:
    """How long a prompt is going to be, in tokens: what the cache holds of it, and the rest."""

    cached: int
    fresh: int

    @property
    def tokens(self) -> int:
        return self.cached + self.fresh


def _expected(loop: Loop, messages: list[dict[str, Any]], setting: dict[str, Any]) -> _Prompt:
    """What the last turn ended with, and what has come since, which is estimated."""
    usage = loop.conversation.usage
    if usage is None:
        return _Prompt(0, transcript.tokens([setting, *messages]))
    return _Prompt(usage.context_tokens, transcript.tokens(messages[-1:]))


def _setting(loop: Loop, tools: tuple[Tool, ...]) -> dict[str, Any]:
    """What stands before the messages; the same all through a conversation."""
    return {"system": transcript.system(prompts.system(loop)), "tools": transcript.tools(tools)}


def _words(draft: Draft) -> Turn:
    """A reply of which only the text counts: no call, and no thinking instead of it."""
    return Turn("" if draft.stop == REFUSED else draft.text, usage=draft.usage, stop=draft.stop)
