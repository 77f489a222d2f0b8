"""An agent of the OpenAI Agents SDK that uses the tools of the MCP server at the URL."""

import asyncio
import json
import sys

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from framework_model import Scripted


async def main() -> None:
    set_tracing_disabled(True)
    model = Scripted()
    async with MCPServerStreamableHttp({"url": sys.argv[1]}, client_session_timeout_seconds=60) as server:
        agent = Agent(name="user", model=model, mcp_servers=[server])
        result = await Runner.run(agent, "Grüße, 世界")
    print(json.dumps({"tools": model.tools, "output": str(result.final_output)}))


asyncio.run(main())
