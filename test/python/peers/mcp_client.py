"""An MCP client of 1.x: calls each tool of the server at the URL, answers its questions in
each way, and prints as JSON what it and the server have heard. With a tool, arguments and the content of
an answer after the URL, it calls that tool alone, and prints the revision, how often it was asked, and
whether the call failed."""

import asyncio
import json
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


async def calls(url: str, action: str) -> dict:
    asked, logs = [], []

    async def answer(_context, params):
        asked.append(params.message)
        content = {"name": "Ada"} if "name" in params.message else {}
        return types.ElicitResult(action=action, content=content if action == "accept" else None)

    async def log(params):
        logs.append(params.data)

    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write, elicitation_callback=answer, logging_callback=log) as session:
            hello = await session.initialize()
            heard = {}
            for tool in ("greet", "wipe", "order", "purge", "echo", "report"):
                result = await session.call_tool(tool, {"text": "Grüße, 世界"} if tool == "echo" else {})
                heard[tool] = result.content[0].text
            return {"version": hello.protocolVersion, "asked": asked, "logs": logs, "heard": heard}


async def call(url: str, tool: str, arguments: str, content: str) -> list:
    asked = []

    async def answer(_context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content=json.loads(content))

    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write, elicitation_callback=answer) as session:
            hello = await session.initialize()
            result = await session.call_tool(tool, json.loads(arguments))
            return [hello.protocolVersion, len(asked), result.isError]


async def main() -> None:
    if len(sys.argv) > 2:
        print(json.dumps(await call(*sys.argv[1:])))
        return
    print(json.dumps({action: await calls(sys.argv[1], action) for action in ("accept", "decline", "cancel")}))


asyncio.run(main())
