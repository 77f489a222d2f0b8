"""An MCP server of every revision that its SDK speaks. Says "ready URL" once it listens."""

import asyncio
import socket
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel

server = MCPServer("peers", version="1", log_level="ERROR")


class Name(BaseModel):
    name: str


class Nothing(BaseModel):
    pass


@server.tool()
async def greet(ctx: Context) -> str:
    """Asks for a name."""
    answer = await ctx.elicit("What is your name?", schema=Name)
    if answer.action == "accept":
        return f"accept {answer.data.name}"
    return answer.action


@server.tool()
async def wipe(ctx: Context) -> str:
    """Asks whether to delete everything, in a form with nothing to fill in."""
    return (await ctx.elicit("Delete all?", schema=Nothing)).action


def name_of_order() -> Elicit[Name]:
    return Elicit("Order in what name?", Name)


def sure_to_purge() -> Elicit[Nothing]:
    return Elicit("Purge all?", Nothing)


@server.tool()
async def order(answer: Annotated[ElicitationResult[Name], Resolve(name_of_order)]) -> str:
    """Like greet, but asks in the way of the client's revision: by a request or in a result."""
    return f"accept {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
async def purge(answer: Annotated[ElicitationResult[Nothing], Resolve(sure_to_purge)]) -> str:
    """Like wipe, in that way."""
    return answer.action


@server.tool()
async def echo(text: str) -> str:
    """Says what it was told."""
    return text


@server.tool()
async def report(ctx: Context) -> str:
    """Logs three messages."""
    for line in ("one", "two", "three"):
        await ctx.info(line)
    return "logged"


@server.tool()
async def count(ctx: Context) -> str:
    """Reports three steps."""
    for number, step in enumerate(("one", "two", "three"), 1):
        await ctx.report_progress(number, 3, step)
    return "counted"


gone = asyncio.Event()


@server.tool()
async def wait(ctx: Context) -> str:
    """Lasts until it is canceled."""
    await ctx.report_progress(1, None, "waiting")
    try:
        await asyncio.Event().wait()
    finally:
        gone.set()
    return "never"


@server.tool()
async def canceled() -> str:
    """Answers once wait was canceled."""
    await gone.wait()
    return "canceled"


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    await running.serve(sockets=[listener])


asyncio.run(main())
