"""A SLIM node or application of today, told what to do by lines of JSON on standard
input and answering each with a line of JSON on standard output. Nothing of it is
ours but this loop; the agent that it serves is that of the library's own example."""

import asyncio
import json
import sys
from datetime import timedelta

import slim_bindings as slim

apps, sessions = {}, {}


def service():
    if not slim.is_initialized():
        slim.initialize_with_defaults()
    return slim.get_global_service()


def name_of(text):
    return slim.Name(*text.split("/"))


async def node(config):
    """config is a service configuration, as SLIM's own program reads it."""
    slim.initialize_from_config(config)
    return {"version": slim.get_version()}


async def app(endpoint, name, secret, ca=None, agent=""):
    running = service()
    config = slim.new_secure_client_config(endpoint) if ca else slim.new_insecure_client_config(endpoint)
    if ca:
        config.tls.ca_source = slim.CaSource.PEM(data=ca)
    connection = await running.connect_async(config)
    own = name_of(name)
    made = running.create_app_with_secret(own, secret)
    await made.subscribe_async(own, connection)
    apps[name] = made, connection
    if agent:
        apps[name] += (asyncio.create_task(serve(made, name, connection, agent)),)
    return {"version": slim.get_version()}


async def serve(made, name, connection, kind):
    """kind: extended (shows a card to clients of 1.0), compat (serves 0.3 too), plain."""
    from a2a.helpers import new_text_message
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import a2a_pb2 as types
    from slima2a.compat.v3_0.handler import SRPCCompatHandler
    from slima2a.handler import SRPCHandler
    from slima2a.types.v0.a2a_pb2_slimrpc import add_A2AServiceServicer_to_server as add_old
    from slima2a.types.v1.a2a_pb2_slimrpc import add_A2AServiceServicer_to_server as add

    class Echo(AgentExecutor):
        async def execute(self, context, queue):
            await queue.enqueue_event(new_text_message("echo: " + context.get_user_input()))

        async def cancel(self, context, queue):
            raise NotImplementedError

    card = types.AgentCard(
        name="Echo", description="says it again", version="1.2.3",
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        capabilities=types.AgentCapabilities(streaming=False, extended_agent_card=kind == "extended"),
        skills=[types.AgentSkill(id="echo", name="Say again", description="says it again", tags=["echo"])],
        supported_interfaces=[
            types.AgentInterface(url=name, protocol_binding="slimrpc", protocol_version=version)
            for version in (["1.0", "0.3"] if kind == "compat" else ["1.0"])
        ],
    )
    handler = DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card,
        extended_agent_card=card if kind == "extended" else None,
    )
    server = slim.Server.new_with_connection(made, name_of(name), connection)
    if kind == "compat":
        add_old(SRPCCompatHandler(card, handler), server)
    add(SRPCHandler(card, handler), server)
    await server.serve_async()


def remember(session):
    key = f"s{len(sessions)}"
    sessions[key] = session
    return key


async def open_session(app, to, retries=5, interval=1000, group=False):
    made, connection, *_ = apps[app]
    await made.set_route_async(name_of(to), connection)
    config = slim.SessionConfig(
        session_type=slim.SessionType.GROUP if group else slim.SessionType.POINT_TO_POINT, max_retries=retries,
        interval=timedelta(milliseconds=interval), metadata={}, mls_settings=None,
    )
    return {"session": remember(await made.create_session_and_wait_async(config, name_of(to)))}


async def listen(app):
    session = await apps[app][0].listen_for_session_async(timedelta(seconds=10))
    return {"session": remember(session), "metadata": session.metadata()}


async def invite(app, session, who):
    made, connection, *_ = apps[app]
    await made.set_route_async(name_of(who), connection)
    await sessions[session].invite_and_wait_async(name_of(who))
    return {}


async def publish(session, body, type=None, metadata=None):
    await sessions[session].publish_and_wait_async(body.encode(), type, metadata)
    return {}


async def receive(session):
    m = await sessions[session].get_message_async(timedelta(seconds=10))
    return {"body": m.payload.decode(), "type": m.context.payload_type, "metadata": m.context.metadata}


async def close(app, session):
    await apps[app][0].delete_session_and_wait_async(sessions[session])
    return {}


async def call(app, to, service, method, body, timeout=15000):
    made, connection, *_ = apps[app]
    channel = slim.Channel.new_with_connection(made, name_of(to), connection)
    reply = await channel.call_unary_async(service, method, body.encode(), timedelta(milliseconds=timeout), None)
    return {"body": reply.decode()}


jobs = {
    "node": node, "app": app, "open": open_session, "listen": listen, "invite": invite, "publish": publish,
    "receive": receive, "close": close, "call": call,
}


async def do(id, job, **rest):
    try:
        answer = {"id": id, "result": await jobs[job](**rest)}
    except Exception as error:  # told to the test, whatever it is
        code = getattr(getattr(error, "code", None), "value", 0)
        answer = {"id": id, "error": {"name": type(error).__name__, "code": code, "message": str(error)}}
    print(json.dumps(answer), flush=True)


async def main():
    slim.uniffi_set_event_loop(asyncio.get_running_loop())
    reader = asyncio.StreamReader(limit=64 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    under_way = set()
    while line := await reader.readline():
        task = asyncio.create_task(do(**json.loads(line)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)


asyncio.run(main())
