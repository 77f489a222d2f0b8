"""An MCP client of 1.x whose calls wait for approval. Each line of its input is a list: ["call",
TEXT] has the tool talk say a text, ["begin", TEXT] does that as a task, ["get", ID] reads a task,
and ["result", ID] takes its result. Prints as JSON what comes of each."""

import asyncio
import json
import sys

from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamablehttp_client


def shown(result) -> dict:
    return {"state": "failed" if result.isError else "completed", "text": result.content[0].text}


async def use(session, verb: str, word: str) -> dict:
    if verb == "call":
        return shown(await session.call_tool("talk", {"message": word}))
    tasks = session.experimental
    if verb == "result":
        return shown(await tasks.get_task_result(word, types.CallToolResult))
    if verb == "begin":
        task = (await tasks.call_tool_as_task("talk", {"message": word})).task
    else:
        task = await tasks.get_task(word)
    return {"id": task.taskId, "state": task.status, "text": task.statusMessage or ""}


async def main() -> None:
    async with streamablehttp_client(sys.argv[1]) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            while line := await asyncio.to_thread(sys.stdin.readline):
                try:
                    seen = await use(session, *json.loads(line))
                except McpError as error:
                    seen = {"state": "error", "text": str(error), "data": error.error.data}
                print(json.dumps(seen), flush=True)


asyncio.run(main())
