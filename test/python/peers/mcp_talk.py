"""An MCP client of 1.x: talks with the agent behind the tool "talk" at the URL, cancels one
call once it is under way, and prints as JSON what it has seen."""

import asyncio
import json
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


async def main() -> None:
    asked = []

    async def answer(_context, params):
        asked.append(params.message)
        field = next(iter(params.requestedSchema["properties"]))
        return types.ElicitResult(action="accept", content={field: "Ada"})

    async with streamablehttp_client(sys.argv[1]) as (read, write, _):
        async with ClientSession(read, write, elicitation_callback=answer) as session:
            await session.initialize()
            seen = {"tools": [tool.name for tool in (await session.list_tools()).tools], "heard": {}, "progress": {}}
            for said in ("Grüße, 世界", "count", "greet", "fail"):
                steps = []

                async def progress(_done, _total, message, steps=steps):
                    steps.append(message)

                result = await session.call_tool("talk", {"message": said}, progress_callback=progress)
                seen["heard"][said] = [result.isError, result.content[0].text]
                seen["progress"][said] = steps
            seen["asked"] = asked

            begun = asyncio.Event()

            async def under_way(_done, _total, message):
                if message == "waiting":
                    begun.set()

            number = session._request_id  # the SDK has no other way to name a request
            call = asyncio.create_task(session.call_tool("talk", {"message": "wait"}, progress_callback=under_way))
            await begun.wait()
            params = types.CancelledNotificationParams(requestId=number)
            await session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
            result = await session.call_tool("talk", {"message": "canceled?"})
            seen["heard"]["canceled?"] = [result.isError, result.content[0].text]
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
    print(json.dumps(seen))


asyncio.run(main())
