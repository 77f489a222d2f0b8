"""An MCP client of 1.x over HTTP with SSE (2024-11-05): talks with the agent behind the tool
"talk" at the URL, and prints as JSON what it has seen."""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.sse import sse_client


async def main() -> None:
    async with sse_client(sys.argv[1]) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            seen = {"tools": [tool.name for tool in (await session.list_tools()).tools], "steps": []}

            async def progress(_done, _total, message):
                seen["steps"].append(message)

            result = await session.call_tool("talk", {"message": "Grüße, 世界"})
            seen["answer"] = result.content[0].text
            result = await session.call_tool("talk", {"message": "count"}, progress_callback=progress)
            seen["counted"] = result.content[0].text
    print(json.dumps(seen))


asyncio.run(main())
