"""Calls tools and prints what they answer, in JSON: client.py TARGET CALLS.

TARGET is the address of a server, to which TOKEN is sent, or a command line in JSON. CALLS are pairs of tool and arguments in JSON.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


def connect(target):
    if target.startswith("http"):
        client = create_mcp_http_client(headers={"Authorization": "Bearer " + os.environ["TOKEN"]})
        return streamable_http_client(target, http_client=client)
    command, *args = json.loads(target)
    return stdio_client(StdioServerParameters(command=command, args=args, env=dict(os.environ)))


async def main(target, calls):
    async with connect(target) as (read, write, *_), ClientSession(read, write) as session:
        server = await session.initialize()
        tools = await session.list_tools()
        answers = []
        for name, arguments in calls:
            result = await session.call_tool(name, arguments)
            answers.append({"failed": result.is_error, "text": result.content[0].text})
        names = sorted(tool.name for tool in tools.tools)
        print(json.dumps({"server": server.server_info.name, "tools": names, "answers": answers}))


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
