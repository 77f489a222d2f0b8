"""An MCP client of 1.x: calls tools of fastmcp_server.py that take their time, with and without a
token of progress, all beside each other, over Streamable HTTP at the URL and over HTTP with SSE at
URL/sse. Prints as JSON what each call has heard and how often its tool ran, and what was logged."""

import asyncio
import json
import logging
import sys

from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client

warnings = []


class Keep(logging.Handler):
    def emit(self, record) -> None:
        warnings.append(record.getMessage())


async def main() -> None:
    logging.getLogger().addHandler(Keep(logging.WARNING))
    seen = await asyncio.gather(calls(streamablehttp_client, sys.argv[1]), calls(sse_client, sys.argv[1] + "/sse"))
    print(json.dumps(dict(zip(("http", "sse"), seen)) | {"warnings": warnings}))


async def calls(connect, url: str) -> dict:
    async with connect(url) as streams:
        async with ClientSession(streams[0], streams[1], message_handler=unexpected) as session:
            await session.initialize()
            naps = (nap(session, url, seconds, wanted) for seconds in (0.3, 5) for wanted in (False, True))
            return dict(await asyncio.gather(*naps, count(session)))


async def unexpected(message) -> None:
    if isinstance(message, Exception):
        warnings.append(str(message))


async def nap(session, url: str, seconds: float, wanted: bool):
    key = f"{seconds} {'with' if wanted else 'without'} progress"
    heard = []

    async def progress(_done, _total, message):
        heard.append(message)

    arguments = {"seconds": seconds, "key": url + key}
    result = await session.call_tool("nap", arguments, progress_callback=progress if wanted else None)
    ran = await session.call_tool("naps", {"key": url + key})
    return key, [result.isError, result.content[0].text, heard, ran.content[0].text]


async def count(session):
    heard = []

    async def progress(_done, _total, message):
        heard.append(message)

    result = await session.call_tool("count", {}, progress_callback=progress)
    return "count", [result.isError, result.content[0].text, heard]


asyncio.run(main())
