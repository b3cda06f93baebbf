"""mcp_clients.py PROGRAMS: tests ken as a server of the Model Context Protocol with the official Python client, over pipes and over
streamable HTTP, with and without the handshake of older versions. Parts are killed during calls."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from mcp import Client, StdioServerParameters

programs = Path(sys.argv[1]).resolve()
checks = 0
SCRIPT = [
    {"when": "slowly", "events": [{"sleep_ms": 5000}, {"text": "At last."}]},
    {"events": [{"text": "Hello there."}]},
]


def holds(what, condition, shown=""):
    global checks
    if not condition:
        sys.exit(f"mcp_clients.py: does not hold: {what}: {shown}")
    checks += 1


def completed(url, status="completed"):
    with urllib.request.urlopen(f"{url}/api/telemetry/runs?limit=100") as answer:
        return sum(run["status"] == status for run in json.load(answer)["runs"])


async def ask(client, question):
    """Asks, and asks again as a user would if the client loses the answer."""
    for _ in range(20):
        try:
            return (await client.call_tool("ask_ken", {"question": question})).content[0].text
        except Exception as error:
            lost = error
            await asyncio.sleep(0.5)
    raise lost


async def check(name, server, mode, home, url):
    async with Client(server, mode=mode) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        holds(f"{name}: tools", {"ask_ken", "get_result", "run_workflow", "knowledge_search", "reason"} <= tools, tools)
        holds(f"{name}: prompts", "research" in [prompt.name for prompt in (await client.list_prompts()).prompts])
        arguments = {"facts": ["Socrates is a man"], "rules": [[["?x is a man"], "?x is mortal"]]}
        reasoned = await client.call_tool("reason", arguments)
        holds(f"{name}: reason", "Socrates is mortal" in reasoned.content[0].text, reasoned)
        holds(f"{name}: wrong arguments", (await client.call_tool("reason", {"facts": "x"})).is_error)
        holds(f"{name}: an answer", await ask(client, f"hi, {name}") == "Hello there.")
        for part in ["agent", "gateway"]:
            before = completed(url)
            answer = asyncio.create_task(ask(client, f"slowly, {name}, and {part} is killed"))
            while completed(url, "running") == 0:
                await asyncio.sleep(0.1)
            subprocess.run([programs / "ken", "--home", home, "kill", part], check=True, stdout=subprocess.DEVNULL)
            holds(f"{name}: {part} killed", await answer == "At last.")
            holds(f"{name}: one turn", completed(url) == before + 1)
    print(f"{name}: tools, prompts, one turn through kills")


async def main(home, url):
    pipe = StdioServerParameters(command=str(programs / "ken-mcp"), args=["--home", home])
    for mode in ["auto", "legacy"]:
        await check(f"pipes, {mode}", pipe, mode, home, url)
        await check(f"HTTP, {mode}", f"{url}/mcp", mode, home, url)


with tempfile.TemporaryDirectory() as folder:
    script = Path(folder, "script.jsonl")
    script.write_text("".join(json.dumps(line) + "\n" for line in SCRIPT))
    home = str(Path(folder, "home"))
    words = [programs / "ken", "--home", home, "up", "--port", "0", "--cognitive-port", "0"]
    environment = {**os.environ, "KEN_MODEL": "script", "KEN_SCRIPT": str(script)}
    system = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        ready = system.stdout.readline()
        asyncio.run(main(home, ready.split("gateway=")[1].split()[0]))
    finally:
        system.terminate()
        system.wait()
print(f"the Python client of MCP: {checks} checks hold")
