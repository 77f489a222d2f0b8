"""A client of the package fastmcp, which wants progress of each call: calls tools of
fastmcp_server.py that take their time, all beside each other, over Streamable HTTP at the URL and
over HTTP with SSE at URL/sse. Prints as JSON what each call has heard and how often its tool ran,
and what was logged."""

import asyncio
import json
import logging
import sys

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StreamableHttpTransport

warnings = []


class Keep(logging.Handler):
    def emit(self, record) -> None:
        warnings.append(record.getMessage())


async def main() -> None:
    logging.getLogger().addHandler(Keep(logging.WARNING))
    url = sys.argv[1]
    seen = await asyncio.gather(calls(StreamableHttpTransport(url), "http"), calls(SSETransport(url + "/sse"), "sse"))
    print(json.dumps(dict(zip(("http", "sse"), seen)) | {"warnings": warnings}))


async def calls(transport, name: str) -> dict:
    async with Client(transport) as client:
        return dict(await asyncio.gather(*(nap(client, name, seconds) for seconds in (0.3, 5))))


async def nap(client, name: str, seconds: float):
    key = f"fastmcp {name} {seconds}"
    result = await client.call_tool("nap", {"seconds": seconds, "key": key})
    ran = await client.call_tool("naps", {"key": key})
    return str(seconds), [result.is_error, result.content[0].text, ran.content[0].text]


asyncio.run(main())
