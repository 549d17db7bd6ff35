"""A run's tools over the Model Context Protocol, for agents that are not ours.

Owns how tools, answers and prompts look in that protocol. Who may connect, over which wire, and
what becomes of a call is decided by whoever serves.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from kernels.catalog import Problem, load_problem
from runner import prompts, tools
from runner.agents.external import PROMPT, SERVER, Reply
from runner.spec import RunSpec
from runner.workflows import goal

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

Report = Callable[[str], Awaitable[None]]


class Desk(Protocol):
    """Where calls are carried out: one run."""

    @property
    def spec(self) -> RunSpec: ...

    async def call(self, tool: str, arguments: dict[str, Any], report: Report) -> Reply:
        """Wait for the answer; `report` takes a few words, now and then, on what goes on."""
        ...

    async def brief(self) -> str:
        """The brief that opens the agent's work, as it stands in the log; empty before that."""
        ...


@dataclass(frozen=True)
class Setting:
    """What is the same all through a run, as prompts need it."""

    spec: RunSpec
    problem: Problem


def serve(desk: Desk) -> Server[Any]:
    """The server of one run, with no wire to it yet."""
    handlers = _Handlers(desk)
    return Server(
        SERVER,
        version=_version(),
        instructions=instructions(desk.spec),
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


def instructions(spec: RunSpec) -> str:
    """What a client is told as it connects: the task first, for clients that cut what is long."""
    setting = Setting(spec, load_problem(spec.problem))
    return f"{prompts.objective(setting, goal.STAGE.prompt)}\n\n{prompts.system(setting)}"


@dataclass(frozen=True)
class _Handlers:
    desk: Desk

    async def list_tools(
        self, context: ServerRequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        offered = [tools.get(name) for name in goal.STAGE.tools]
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema)
                for tool in offered
            ]
        )

    async def call_tool(
        self, context: ServerRequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        started = time.monotonic()

        async def report(words: str) -> None:
            await context.session.report_progress(time.monotonic() - started, message=words)

        reply = await self.desk.call(params.name, params.arguments or {}, report)
        return types.CallToolResult(
            content=[types.TextContent(text=text) for text in (reply.text, *reply.told)],
            structured_content=reply.error,
            is_error=not reply.ok,
        )

    async def list_prompts(
        self, context: ServerRequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        description = "The whole task: the rules, the contract, and where the run stands."
        return types.ListPromptsResult(prompts=[types.Prompt(name=PROMPT, description=description)])

    async def get_prompt(
        self, context: ServerRequestContext, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        if params.name != PROMPT:
            raise MCPError(types.INVALID_PARAMS, f"there is one prompt here: {PROMPT}")
        setting = Setting(self.desk.spec, load_problem(self.desk.spec.problem))
        opening = await self.desk.brief() or prompts.objective(setting, goal.STAGE.prompt)
        content = types.TextContent(text=f"{prompts.system(setting)}\n\n{opening}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


def _version() -> str:
    try:
        return version(SERVER)
    except PackageNotFoundError:  # from a checkout
        return ""
