"""An A2A agent whose work the OpenAI Agents SDK does. Says "ready URL" once it listens."""

import asyncio
import socket

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from agents import Agent, Runner, set_tracing_disabled
from framework_model import Scripted
from starlette.applications import Starlette


class Framework(AgentExecutor):
    async def execute(self, context, event_queue) -> None:
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        result = await Runner.run(Agent(name="talker", model=Scripted()), context.get_user_input())
        await updater.add_artifact([new_text_part(str(result.final_output))])
        await updater.complete()

    async def cancel(self, context, event_queue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    set_tracing_disabled(True)
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    card = AgentCard(
        name="framework", description="Talks.", version="1",
        supported_interfaces=[AgentInterface(url=url + "/", protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        skills=[AgentSkill(id="talk", name="Talk", description="Says what it is told.", tags=["talk"])],
    )
    handler = DefaultRequestHandler(Framework(), InMemoryTaskStore(), card)
    app = Starlette(routes=create_jsonrpc_routes(handler, "/") + create_agent_card_routes(card))
    running = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    print(f"ready {url}", flush=True)
    await running.serve(sockets=[listener])


asyncio.run(main())
