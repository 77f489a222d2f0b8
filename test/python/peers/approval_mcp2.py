"""An MCP client of 2.x, in the mode given after the URL: like approval_mcp.py, without tasks."""

import asyncio
import json
import sys

from mcp import Client, MCPError


async def main() -> None:
    url, mode = sys.argv[1:]
    async with Client(url, mode=mode) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            _, text = json.loads(line)
            try:
                result = await client.call_tool("talk", {"message": text})
                seen = {"state": "failed" if result.is_error else "completed", "text": result.content[0].text}
            except MCPError as error:
                seen = {"state": "error", "text": str(error), "data": error.error.data}
            print(json.dumps(seen), flush=True)


asyncio.run(main())
