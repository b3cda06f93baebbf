"""openai_clients.py PROGRAMS: talks to a system of ken through the Python library of OpenAI, litellm, llm and aichat, each with nothing but a base URL,
and kills gateway and agent while they wait: their own retries get one answer of one turn. The exit status is 0 if all checks pass."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it looks for prices on the internet
import httpx
import litellm
import openai

from system import counted, holds, ken

programs = Path(sys.argv[1]).resolve()
LINES = [
    {"when": "slowly", "events": [{"text": "One "}, {"sleep_ms": 700}, {"text": "two "}, {"sleep_ms": 700}, {"text": "three."}]},
    {"when": "late", "after_tools": 1, "events": [{"sleep_ms": 900}, {"text": "It is 18."}]},
    {"when": "late", "events": [{"sleep_ms": 900}, {"tool": {"name": "client__weather", "arguments": {"city": "Paris"}}}]},
    {"when": "weather", "after_tools": 1, "events": [{"text": "It is 18."}]},
    {"when": "weather", "events": [{"tool": {"name": "client__weather", "arguments": {"city": "Paris"}}}]},
    {"events": [{"text": "Hello"}, {"text": " there."}]},
]


def part(run, name):
    """The process id of a part."""
    reply = json.loads(run("call", "kend", "parts.status").stdout.splitlines()[-1])
    return next(one.get("pid") for one in reply["parts"] if one["name"] == name)


def wait_until_stable(run, name):
    """Waits until a part has been ready long enough that it is restarted at once if it dies."""
    pid, since = None, time.monotonic()
    while time.monotonic() < since + 1.2:
        now = part(run, name)
        if now is None or now != pid:
            pid, since = now, time.monotonic()
        time.sleep(0.1)


def sessions(run):
    """The number of sessions."""
    return len(run("sessions", "--all", "--json", "--limit", "100").stdout.splitlines())


def chat(client):
    asked = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hello"}]
    raw = client.chat.completions.with_raw_response.create(model="ken", messages=asked, temperature=0.5)
    answer = raw.parse()
    holds("an answer", answer.choices[0].message.content == "Hello there.", answer)
    holds("its usage", answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer)
    holds("what is ignored is named", raw.headers["x-ken-ignored"] == "temperature", raw.headers)
    asked += [answer.choices[0].message.to_dict(), {"role": "user", "content": "and slowly"}]
    with client.chat.completions.with_streaming_response.create(model="ken", messages=asked, stream=True) as stream:
        holds("its session goes on", stream.headers["x-ken-session"] == raw.headers["x-ken-session"], stream.headers)
        text = "".join(chunk for chunk in stream.iter_text())
        holds("in pieces", text.endswith("data: [DONE]\n\n"), text)
    chunks = list(client.chat.completions.create(model="ken", messages=asked[:2], stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    holds("a stream", text == "Hello there." and chunks[-1].usage.total_tokens > 0, chunks)
    pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    parts = [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": pixel}}]
    answer = client.chat.completions.create(model="ken", messages=[{"role": "user", "content": parts}])
    holds("an image", answer.choices[0].message.content == "Hello there.", answer)
    with client.chat.completions.stream(model="ken", messages=asked[:2]) as stream:
        last = [event for event in stream if event.type == "content.done"]
        holds("the helper for streams", last[0].content == "Hello there.", last)


def errors(client):
    for kind, more in [
        (openai.BadRequestError, {"n": 2}),
        (openai.BadRequestError, {"seed": 1}),
        (openai.BadRequestError, {"logprobs": True}),
        (openai.NotFoundError, {"model": "gpt-4o"}),
    ]:
        try:
            client.chat.completions.create(**{"model": "ken", "messages": [{"role": "user", "content": "hello"}]} | more)
            holds(f"{more} is refused", False)
        except kind as error:
            holds(f"{more} is named", error.param in more, error)
    models = [model.id for model in client.models.list()]
    holds("models", models[0] == "ken" and all(client.models.retrieve(model).id == model for model in models), models)


def responses(client):
    first = client.responses.create(model="ken", input="hello", instructions="Be short.")
    holds("a response", first.output_text == "Hello there." and first.status == "completed", first)
    second = client.responses.create(model="ken", input="again", previous_response_id=first.id)
    holds("it goes on", second.previous_response_id == first.id, second)
    holds("it is read", client.responses.retrieve(second.id).output_text == "Hello there.", second)
    with client.responses.stream(model="ken", input="slowly") as stream:
        kinds = [event.type for event in stream]
        last = stream.get_final_response()
    holds("its stream", last.output_text == "One two three." and kinds[-1] == "response.completed", kinds)
    rest = [event.sequence_number for event in client.responses.retrieve(last.id, stream=True, starting_after=4)]
    holds("the rest of a stream", rest[0] == 5 and len(rest) == len(kinds) - 5, rest)
    held = client.responses.create(model="ken", input="and slowly", background=True)
    holds("in the background", client.responses.cancel(held.id).status == "cancelled", held)
    client.responses.delete(second.id)
    try:
        client.responses.retrieve(second.id)
        holds("it is deleted", False)
    except openai.NotFoundError:
        holds("it is deleted", True)


FUNCTION = {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
WEATHER = [{"type": "function", "function": FUNCTION}]


def tools(client):
    asked, tools = [{"role": "user", "content": "weather"}], WEATHER
    first = client.chat.completions.create(model="ken", messages=asked, tools=tools).choices[0]
    call = first.message.tool_calls[0]
    holds("a call of a tool", first.finish_reason == "tool_calls" and json.loads(call.function.arguments) == {"city": "Paris"}, first)
    asked += [first.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "18"}]
    second = client.chat.completions.create(model="ken", messages=asked, tools=tools).choices[0]
    holds("its result", second.message.content == "It is 18.", second)
    with client.chat.completions.stream(model="ken", messages=asked[:1], tools=tools) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
    holds("a call in pieces", streamed.function.name == "weather", streamed)
    tools = [FUNCTION | {"type": "function"}]
    first = client.responses.create(model="ken", input="weather", tools=tools)
    call = next(item for item in first.output if item.type == "function_call")
    output = [{"type": "function_call_output", "call_id": call.call_id, "output": "18"}]
    second = client.responses.create(model="ken", input=output, previous_response_id=first.id, tools=tools)
    holds("a response goes on with a result", second.output_text == "It is 18.", second)


def kills(client, run):
    """The library repeats a request whose connection broke, at most as often as `max_retries` says."""
    patient = client.with_options(max_retries=8)
    for number, (name, stream) in enumerate([("gateway", False), ("agent", False), ("agent", True)]):
        wait_until_stable(run, name)
        before = sessions(run)
        killer = threading.Timer(0.5, lambda: os.kill(part(run, name), signal.SIGKILL))
        killer.start()
        asked = [{"role": "user", "content": f"slowly, {number}"}]
        if stream:
            chunks = patient.chat.completions.create(model="ken", messages=asked, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            text = patient.chat.completions.create(model="ken", messages=asked).choices[0].message.content
        killer.join()
        holds(f"one answer when the {name} is killed", text == "One two three.", text)
        holds(f"one turn when the {name} is killed", sessions(run) == before + 1, sessions(run))
        wait_until_stable(run, name)
        before = sessions(run)
        killer = threading.Timer(0.5, lambda: os.kill(part(run, name), signal.SIGKILL))
        killer.start()
        answer = patient.responses.create(model="ken", input=f"slowly, response {number}")
        killer.join()
        holds(f"one response when the {name} is killed", answer.output_text == "One two three.", answer)
        holds(f"one turn of responses when the {name} is killed", sessions(run) == before + 1, sessions(run))
    for name in ["gateway", "agent"]:
        kill_with_tools(patient, run, name)
    # A stream that was cut is no answer. The library says so, and the same request gets the turn that was begun.
    wait_until_stable(run, "gateway")
    before = sessions(run)
    threading.Timer(0.5, lambda: os.kill(part(run, "gateway"), signal.SIGKILL)).start()
    asked = [{"role": "user", "content": "slowly, and cut"}]
    try:
        list(patient.chat.completions.create(model="ken", messages=asked, stream=True))
        is_whole = True
    except (openai.APIError, httpx.TransportError):
        is_whole = False
    holds("a cut stream is an error", not is_whole)
    chunks = list(patient.chat.completions.create(model="ken", messages=asked, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    holds("the same request gets its turn", text == "One two three." and sessions(run) == before + 1, text)


def kill_with_tools(patient, run, name):
    """A kill before the call of a tool, and one before the answer to its result."""
    asked, before = [{"role": "user", "content": f"late, {name}"}], sessions(run)
    for last in [False, True]:
        wait_until_stable(run, name)
        killer = threading.Timer(0.4, lambda: os.kill(part(run, name), signal.SIGKILL))
        killer.start()
        choice = patient.chat.completions.create(model="ken", messages=asked, tools=WEATHER).choices[0]
        killer.join()
        if last:
            holds(f"the result is used when the {name} is killed", choice.message.content == "It is 18.", choice)
        else:
            calls = choice.message.tool_calls
            holds(f"one call when the {name} is killed", choice.finish_reason == "tool_calls" and len(calls) == 1, choice)
            asked += [choice.message.to_dict(), {"role": "tool", "tool_call_id": calls[0].id, "content": "18"}]
    holds(f"one session when the {name} is killed", sessions(run) == before + 1, sessions(run))


def aichat(base, run):
    """A program of crates.io, which takes long to compile; whoever has it on PATH gets it tested."""
    program = shutil.which("aichat")
    if program is None:
        print("aichat is not on PATH (cargo install aichat --locked), and is left out")
        return False
    with tempfile.TemporaryDirectory() as folder:
        client = {"type": "openai-compatible", "name": "ken", "api_base": base, "api_key": "local", "models": [{"name": "ken"}]}
        (Path(folder) / "config.yaml").write_text(json.dumps({"model": "ken:ken", "save": False, "clients": [client]}))
        env = os.environ | {"AICHAT_CONFIG_DIR": folder}
        asked = lambda *words: subprocess.run([program, *words], env=env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        for more in [[], ["--no-stream"]]:
            done = asked(*more, "hello")
            holds(f"aichat {more}", done.stdout.strip() == "Hello there.", done.stderr)
        before = sessions(run)
        for text, answer in [("hello", "Hello there."), ("slowly, aichat", "One two three.")]:
            done = asked("--session", "one", "--save-session", text)
            holds("a session of aichat", done.stdout.strip().endswith(answer), done.stderr)
        holds("it is one of ken", sessions(run) == before + 1, sessions(run))
    return True


def other_clients(base):
    asked = [{"role": "user", "content": "hello"}]
    answer = litellm.completion(model="openai/ken", api_base=base, api_key="local", messages=asked)
    holds("litellm", answer.choices[0].message.content == "Hello there.", answer)
    chunks = litellm.completion(model="openai/ken", api_base=base, api_key="local", messages=asked, stream=True)
    holds("litellm streams", "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello there.")
    with tempfile.TemporaryDirectory() as folder:
        model = "- model_id: ken\n  model_name: ken\n  api_base: " + base + "\n  api_key_name: local\n"
        (Path(folder) / "extra-openai-models.yaml").write_text(model)
        env = os.environ | {"LLM_USER_PATH": folder, "OPENAI_API_KEY": "local"}
        llm = [Path(sys.executable).parent / "llm"]
        subprocess.run([*llm, "keys", "set", "local", "--value", "local"], env=env, check=True, capture_output=True)
        for more in [[], ["--no-stream"]]:
            done = subprocess.run([*llm, "-m", "ken", *more, "hello"], env=env, capture_output=True, text=True, timeout=120)
            holds(f"llm {more}", done.stdout.strip() == "Hello there.", done.stderr)
        done = subprocess.run([*llm, "-c", "slowly"], env=env, capture_output=True, text=True, timeout=120)
        holds("llm goes on", done.stdout.strip() == "One two three.", done.stderr)


with tempfile.TemporaryDirectory(prefix="ken-openai-") as folder:
    home = Path(folder) / "home"
    (home / "model").mkdir(parents=True)
    script = home / "model" / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    with ken(programs, home, {"PATH": os.environ["PATH"], "KEN_MODEL": "script", "KEN_SCRIPT": str(script)}) as run:
        base = run("status", "--addresses").stdout
        base = next(word for word in base.split() if word.startswith("http://"))
        base = f"{base.rstrip('/')}/v1"
        client = openai.OpenAI(base_url=base, api_key="local")
        chat(client)
        errors(client)
        responses(client)
        tools(client)
        kills(client, run)
        other_clients(base)
        more = ", and with aichat from crates.io" if aichat(base, run) else ""
print(f"the interface of OpenAI: {counted()} checks hold with openai, litellm and llm from PyPI{more}")
