"""A FastMCP server of mcp 1.x, over the transport that is named: stdio, or sse, which says
"ready URL" once it listens."""

import asyncio
import socket
import sys

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("fast", log_level="ERROR")


class Name(BaseModel):
    name: str


@server.tool()
async def echo(text: str) -> str:
    """Says what it was told."""
    return text


@server.tool()
async def greet(ctx: Context) -> str:
    """Asks for a name."""
    answer = await ctx.elicit("What is your name?", schema=Name)
    return f"accept {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
async def count(ctx: Context) -> str:
    """Reports each step."""
    for step in range(1, 4):
        await ctx.report_progress(step, 3, f"step {step}")
    return "counted"


async def serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(server.sse_app(), log_level="error", timeout_graceful_shutdown=1))
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/sse", flush=True)
    await running.serve(sockets=[listener])


if sys.argv[1] == "stdio":
    server.run()
else:
    asyncio.run(serve())
