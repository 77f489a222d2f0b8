"""A FastMCP server of mcp 1.x, over the transport that is named: stdio, or one over HTTP (sse, http,
or json, which is http without streams as replies) that says "ready URL" once it listens."""

import asyncio
import socket
import sys
from collections import Counter

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("fast", log_level="ERROR", json_response=sys.argv[1] == "json")


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


ran = Counter()


@server.tool()
async def nap(seconds: float, key: str) -> str:
    """Takes its time, and says nothing meanwhile."""
    ran[key] += 1
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


@server.tool()
async def naps(key: str) -> str:
    """Says how often nap was called with a key."""
    return str(ran[key])


async def serve() -> None:
    app, path = (server.sse_app(), "sse") if sys.argv[1] == "sse" else (server.streamable_http_app(), "mcp")
    listener = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/{path}", flush=True)
    await running.serve(sockets=[listener])


if sys.argv[1] == "stdio":
    server.run()
else:
    asyncio.run(serve())
