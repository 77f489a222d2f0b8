"""An MCP client of 2.x: like mcp_client.py, in the mode given after the URL."""

import asyncio
import json
import sys

from mcp import Client, MCPError, types


async def calls(url: str, mode: str, action: str) -> dict:
    asked, logs, heard = [], [], {}

    async def answer(_context, params):
        asked.append(params.message)
        content = {"name": "Ada"} if "name" in params.message else {}
        return types.ElicitResult(action=action, content=content if action == "accept" else None)

    async def log(params):
        logs.append(params.data)

    async with Client(url, mode=mode, elicitation_callback=answer, logging_callback=log, log_level="info") as client:
        for tool in ("greet", "wipe", "order", "purge", "echo", "report"):
            try:
                result = await client.call_tool(tool, {"text": "Grüße, 世界"} if tool == "echo" else {})
                heard[tool] = result.content[0].text
            except MCPError as error:
                heard[tool] = str(error)
        return {"version": client.protocol_version, "asked": asked, "logs": logs, "heard": heard}


async def call(url: str, mode: str, tool: str, arguments: str, content: str) -> list:
    asked = []

    async def answer(_context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content=json.loads(content))

    async with Client(url, mode=mode, elicitation_callback=answer) as client:
        result = await client.call_tool(tool, json.loads(arguments))
        return [client.protocol_version, len(asked), result.is_error]


async def main() -> None:
    url, mode, *only = sys.argv[1:]
    if only:
        print(json.dumps(await call(url, mode, *only)))
        return
    print(json.dumps({action: await calls(url, mode, action) for action in ("accept", "decline", "cancel")}))


asyncio.run(main())
