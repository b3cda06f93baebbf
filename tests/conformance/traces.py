"""traces.py PROGRAMS: checks the traces that ken exports to an MLflow server: OTLP over HTTP, which MLflow interprets by the
semantic conventions for generative AI. The attributes are compared with the registry of the conventions in the package
opentelemetry-semantic-conventions. The exit status is 0 if all checks pass."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from mlflow import MlflowClient
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as registry

from system import Server, counted, free_port, holds, ken

programs = Path(sys.argv[1])
SAID = "canary-of-an-answer"
SCRIPT = [
    {"when": "look", "after_tools": 0, "events": [{"tool": {"name": "todo_read", "arguments": {}}}]},
    {"events": [{"text": f"It is the {SAID}."}]},
]
OPERATIONS = {one.value for one in registry.GenAiOperationNameValues}
KNOWN = {value for name, value in vars(registry).items() if name.startswith("GEN_AI_")}


def turn(base, home, client, is_known, content):
    """Runs a turn with one tool call. Returns its trace as the server has stored it."""
    home.mkdir()
    (home / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in SCRIPT))
    (home / "ken.toml").write_text(f'[telemetry]\notlp = "{base}"\ncontent = {json.dumps(content)}\n')
    (home / "secrets.env").write_text("OTEL_EXPORTER_OTLP_HEADERS=x-mlflow-experiment-id=0\n")
    (home / "secrets.env").chmod(0o600)
    env = {"PATH": os.environ["PATH"], "KEN_MODEL": "script", "KEN_SCRIPT": str(home / "script.jsonl")}
    with ken(programs, home, env) as run:
        done = run("chat", f"Please look for {SAID}")
        holds("a turn with a tool", done.returncode == 0 and SAID in done.stdout, done.stderr)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [one for one in client.search_traces(locations=["0"]) if one.info.trace_id not in is_known]
            stats = json.loads(run("call", "model", "service.stats").stdout)
            if found and stats["telemetry_exported"]:
                break
            time.sleep(0.2)
        holds("one trace has come", len(found) == 1, stats)
        holds("it is counted, and none is lost", (stats["telemetry_exported"], stats["telemetry_lost"]) == (1, 0), stats)
    is_known.add(found[0].info.trace_id)
    return found[0]


def without_content(trace):
    spans = trace.data.spans
    names = sorted(span.name for span in spans)
    holds("the spans of the turn", names == ["chat script-1", "chat script-1", "execute_tool todo_read", "invoke_agent orchestrator"], names)
    root = next(span for span in spans if span.parent_id is None)
    holds("the agent is the root", root.name == "invoke_agent orchestrator", root)
    holds("it is the parent of all others", {span.parent_id for span in spans if span is not root} == {root.span_id}, spans)
    holds("the state of the trace", trace.info.state in ("OK", "STATE_UNSPECIFIED"), trace.info.state)
    kinds = {"chat": "CHAT_MODEL", "execute_tool": "TOOL", "invoke_agent": "AGENT"}
    for span in spans:
        of = span.attributes
        name = f"{span.name}: "
        own = {key for key in of if key.startswith("gen_ai.")}
        holds(f"{name}its attributes are in the registry", own <= KNOWN, own - KNOWN)
        operation = of["gen_ai.operation.name"]
        holds(f"{name}its operation is in the registry", operation in OPERATIONS, operation)
        holds(f"{name}its name begins with the operation", span.name.startswith(f"{operation} "), operation)
        holds(f"{name}its kind is understood", span.span_type == kinds[operation], span.span_type)
        holds(f"{name}it lies within the turn", root.start_time_ns <= span.start_time_ns <= span.end_time_ns <= root.end_time_ns, span)
        holds(f"{name}no text is in it", span.inputs is None and span.outputs is None, span)
        if operation == "chat":
            holds(f"{name}its provider and model", (of["gen_ai.provider.name"], span.model_name) == ("script", "script-1"), of)
            tokens = of["gen_ai.usage.input_tokens"], of["gen_ai.usage.output_tokens"]
            holds(f"{name}its tokens are numbers", all(isinstance(count, int) for count in tokens) and tokens[0] > 0, of)
        if operation == "execute_tool":
            holds(f"{name}the tool", (of["gen_ai.tool.name"], of["gen_ai.tool.type"]) == ("todo_read", "function"), of)
    chats = [span.attributes for span in spans if span.name.startswith("chat")]
    used = {side: sum(of[f"gen_ai.usage.{side}_tokens"] for of in chats) for side in ("input", "output")}
    said = trace.info.token_usage
    holds("the tokens of the trace", {side: said[f"{side}_tokens"] for side in used} == used, (said, used))
    reasons = [reason for of in sorted(chats, key=str) for reason in of["gen_ai.response.finish_reasons"]]
    holds("how the calls ended", sorted(reasons) == ["stop", "tool_call"], reasons)
    holds("no text is in the trace", SAID not in trace.to_json(), trace.to_json())


def with_content(trace):
    said = [span.outputs[0] for span in trace.data.spans if span.name.startswith("chat")]
    calling = {"role": "assistant", "parts": [{"type": "tool_call", "id": "", "name": "todo_read", "arguments": {}}], "finish_reason": "tool_call"}
    telling = {"role": "assistant", "parts": [{"type": "text", "content": f"It is the {SAID}."}], "finish_reason": "stop"}
    for message in said:
        for part in message["parts"]:
            if "id" in part:
                holds("a call of a tool has an id", len(part["id"]) > 0, message)
                part["id"] = ""
    holds("the call of the tool", calling in said, said)
    holds("the answer", telling in said, said)
    tool = next(span for span in trace.data.spans if span.name.startswith("execute_tool"))
    holds("the result of the tool", tool.outputs is not None, tool)


with tempfile.TemporaryDirectory(prefix="ken-traces-") as name:
    folder = Path(name)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = [Path(sys.executable).parent / "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
               "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", folder / "artifacts"]
    env = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with Server(command, f"{base}/health", folder / "mlflow.log", **env):
        client = MlflowClient(tracking_uri=base)
        is_known = set()
        without_content(turn(base, folder / "silent", client, is_known, content=False))
        print(f"mlflow: the trace of a turn arrives without texts: {counted()} checks hold", flush=True)
        with_content(turn(base, folder / "telling", client, is_known, content=True))
    print(f"mlflow: {counted()} checks hold")
