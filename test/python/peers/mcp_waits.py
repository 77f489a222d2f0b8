"""An MCP client of 2.x: calls the tool echo of the server at the URL, whose call waits for an approver, until it is not
refused any more, and prints as JSON the first refusal and the text of the result."""

import asyncio
import json
import sys

from mcp import Client, MCPError


async def main() -> None:
    url, mode = sys.argv[1:]
    refusals, text = [], None
    async with Client(url, mode=mode) as client:
        while text is None:
            try:
                result = await client.call_tool("echo", {"text": "Grüße"})
                text = result.content[0].text
            except MCPError as error:
                refusals.append(str(error))
                await asyncio.sleep(0.05)
    print(json.dumps({"refused": "/hitl/approvals/" in refusals[0], "text": text}))


asyncio.run(main())
