"""An MCP server of every revision that its SDK speaks. Says "ready URL" once it listens."""

import asyncio
import socket

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
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


@server.tool()
async def report(ctx: Context) -> str:
    """Logs three messages."""
    for line in ("one", "two", "three"):
        await ctx.info(line)
    return "logged"


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    await running.serve(sockets=[listener])


asyncio.run(main())
