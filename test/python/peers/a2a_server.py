"""An A2A agent of 1.0 with the skill "talk". Says "ready URL" once it listens."""

import asyncio
import socket

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette


class Talker(AgentExecutor):
    def __init__(self) -> None:
        self.canceled = asyncio.Event()

    async def execute(self, context, event_queue) -> None:
        said = context.get_user_input()
        first = context.current_task is None
        task = context.current_task or new_task_from_user_message(context.message)
        if first:
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)

        def words(text):
            return updater.new_agent_message([new_text_part(text)])

        if not first:
            await updater.add_artifact([new_text_part(f"Hello, {said}!")])
            await updater.complete()
        elif said == "greet":
            await updater.requires_input(words("What is your name?"))
        elif said == "count":
            for step in ("one", "two", "three"):
                await updater.start_work(words(step))
            await updater.add_artifact([new_text_part("counted")])
            await updater.complete()
        elif said == "fail":
            await updater.failed(words("out of order"))
        elif said == "wait":
            await updater.start_work(words("waiting"))
            await asyncio.Event().wait()
        elif said == "canceled?":
            await self.canceled.wait()
            await updater.add_artifact([new_text_part("canceled")])
            await updater.complete()
        else:
            await updater.add_artifact([new_text_part(said)])
            await updater.complete()

    async def cancel(self, context, event_queue) -> None:
        self.canceled.set()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    card = AgentCard(
        name="talker", description="Talks.", version="1",
        supported_interfaces=[AgentInterface(url=url + "/", protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        skills=[AgentSkill(id="talk", name="Talk", description="Says what it is told.", tags=["talk"])],
    )
    handler = DefaultRequestHandler(Talker(), InMemoryTaskStore(), card)
    app = Starlette(routes=create_jsonrpc_routes(handler, "/") + create_agent_card_routes(card))
    running = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    print(f"ready {url}", flush=True)
    await running.serve(sockets=[listener])


asyncio.run(main())
