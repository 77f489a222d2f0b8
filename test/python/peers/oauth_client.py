"""A client of MCP that has nothing but the URL of an endpoint lists tools and makes a call. Its one argument is JSON:
"endpoint", "as" with "clientId", "clientSecret" and "scope", and "call" with "name" and "arguments". With a secret it asks for
tokens for itself; else it has a user, who signs in at once, and registers if it has no id. Runs with mcp 1.x and 2.x; prints
as JSON the tools, the text of the result, the scopes of each token, and the status and the path of each answer."""

import asyncio
import json
import sys
from urllib.parse import parse_qs, urlsplit

import mcp
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

NEW = hasattr(mcp, "Client")
if NEW:
    import httpx2 as httpx
    from mcp.shared.auth import AuthorizationCodeResult
else:
    import httpx

DONE = "http://127.0.0.1:9/done"  # where nobody is: the browser stops before it


class Storage:
    def __init__(self, client):
        self.client, self.tokens, self.granted = client, None, []

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens
        self.granted.append(tokens.scope or "")

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


def browse(url: str) -> dict:
    """Follows redirects with cookies until the client's own URL, and returns the parameters there."""
    with httpx.Client() as browser:
        for _ in range(10):
            if url.startswith(DONE):
                return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
            page = browser.get(url)
            url = str(page.url.join(page.headers["location"]))
    raise RuntimeError(f"no end of redirects at {url}")


def provider(job: dict) -> OAuthClientProvider:
    who, returned = job["as"], {}
    if "clientSecret" in who:
        return ClientCredentialsOAuthProvider(job["endpoint"], Storage(None), who["clientId"], who["clientSecret"])

    async def redirect(url: str) -> None:
        returned.update(browse(url))

    async def callback():
        if NEW:
            return AuthorizationCodeResult(**{name: returned.get(name) for name in ("code", "state", "iss")})
        return returned["code"], returned["state"]

    asks = {"redirect_uris": [DONE], "grant_types": ["authorization_code"], "token_endpoint_auth_method": "none"}
    known = OAuthClientInformationFull(client_id=who["clientId"], **asks) if "clientId" in who else None
    return OAuthClientProvider(job["endpoint"], OAuthClientMetadata(client_name="desktop", **asks), Storage(known), redirect, callback)


async def main() -> None:
    job, trail = json.loads(sys.argv[1]), []
    auth = provider(job)

    async def note(response) -> None:
        trail.append(f"{response.status_code} {response.url.path}")

    async with httpx.AsyncClient(auth=auth, timeout=30, event_hooks={"response": [note]}) as http:
        transport = streamable_http_client(job["endpoint"], http_client=http)
        if NEW:
            async with mcp.Client(transport) as client:
                tools = await client.list_tools()
                result = await client.call_tool(job["call"]["name"], job["call"]["arguments"])
        else:
            async with transport as (read, write, _), mcp.ClientSession(read, write) as client:
                await client.initialize()
                tools = await client.list_tools()
                result = await client.call_tool(job["call"]["name"], job["call"]["arguments"])
    text = "\n".join(content.text for content in result.content)
    print(json.dumps({"tools": [tool.name for tool in tools.tools], "text": text, "granted": auth.context.storage.granted, "trail": trail}))


asyncio.run(main())
