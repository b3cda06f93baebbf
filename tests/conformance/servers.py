"""servers.py PROGRAMS litellm|llama: see servers.sh. The exit status is 0 if all checks pass."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from system import Server, counted, free_port, holds, ken

KEY = "sk-of-the-proxy"
TEXT = "Grüße from a proxy 🦀, in a sentence that is cut anywhere."
programs, server = Path(sys.argv[1]), sys.argv[2]


def env_of(base, key=KEY):
    return {
        "PATH": os.environ["PATH"],
        "OPENAI_BASE_URL": f"{base}/v1",
        "ANTHROPIC_BASE_URL": base,
        "OPENAI_API_KEY": key,
        "ANTHROPIC_API_KEY": key,
        "KEN_ERRORS": "json",
    }


def ask(base, model, text="Hello", key=KEY, **more):
    """Runs ken-model as a filter. Returns its answer or its error."""
    env = env_of(base, key) | {"KEN_MODEL": model} | more
    done = subprocess.run([programs / "ken-model"], input=text, text=True, env=env, capture_output=True, timeout=300)
    holds(f"{model}: no key is shown", key not in done.stdout + done.stderr, done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else json.loads(done.stderr)["error"]


def turn(base, model, home):
    """Runs a turn in a whole system."""
    with ken(programs, home, env_of(base) | {"KEN_MODEL": model}) as run:
        done = run("chat", "Hello")
        holds(f"a turn over {model}", done.returncode == 0, done.stderr)
        return done.stdout


def litellm(folder):
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    # The second sentence has a number that its passage lacks, so that this verdict on it does not count.
    verdicts = json.dumps({"verdicts": [{"sentence": 1, "verdict": "supported", "quote": "A storm had broken its wall."},
                                        {"sentence": 2, "verdict": "supported"}]})
    mock = {"mock": TEXT, "judge": verdicts, "limited": "litellm.RateLimitError", "broken": "litellm.InternalServerError",
            "long": "litellm.ContextWindowExceededError"}
    models = [{"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_key": "none", "mock_response": says}}
              for name, says in mock.items()]
    # In the format of messages, the fixed answers arrive in one piece; translated from the other format, they are streamed.
    models.append({"model_name": "streamed", "litellm_params": {
        "model": "hosted_vllm/mock", "api_base": f"{base}/v1", "api_key": KEY}})
    config = {"model_list": models, "general_settings": {"master_key": KEY}, "litellm_settings": {"num_retries": 0},
              "router_settings": {"num_retries": 0}}
    (folder / "litellm.yaml").write_text(json.dumps(config, ensure_ascii=False))  # JSON is YAML
    command = [Path(sys.executable).parent / "litellm", "--config", folder / "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with Server(command, f"{base}/v1/models", folder / "litellm.log", KEY, LITELLM_LOCAL_MODEL_COST_MAP="True"):
        for model in ["openai/mock", "openai/streamed", "anthropic/mock", "anthropic/streamed"]:
            got = ask(base, model)
            holds(f"{model}: the text, whole", got.get("text") == TEXT, got)
            holds(f"{model}: how it ended", got["stopReason"] == "stop", got)
            holds(f"{model}: tokens are counted", got["usage"]["input"] > 0 and got["usage"]["output"] > 0, got)
        for name, code, status in [("limited", "busy", 429), ("broken", "unavailable", 500), ("long", "too_large", 400)]:
            for provider in ["openai", "anthropic"]:
                got = ask(base, f"{provider}/{name}")
                holds(f"{provider}/{name}", got.get("code") == code and f"answered {status}" in got["message"], got)
        holds("a wrong key", "answered 4" in ask(base, "openai/mock", key="sk-wrong").get("message", ""))
        # If a model fails, the next one in the list is used, also with another format.
        holds("fail-over", ask(base, "openai/limited,anthropic/broken,openai/streamed").get("text") == TEXT)
        listed = subprocess.run([programs / "ken-model", "list"], env=env_of(base) | {"KEN_MODEL": "openai/mock"},
                                capture_output=True, text=True, timeout=60).stdout
        holds("models are listed", "mock" in listed and "streamed" in listed, listed)
        for provider in ["openai", "anthropic"]:
            found = judge(base, f"{provider}/judge", folder, ["supported", None])
            holds(f"{provider}/judge: tokens and time are counted", found["usage"]["input"] > 0 and found["time_ms"] > 0, found)
            for model in ["mock", "limited"]:
                found = judge(base, f"{provider}/{model}", folder, [None, None])
                holds(f"{provider}/{model}: a judge that fails is named", bool(found["error"]) and found["calls"] == 2, found)
        for model in ["openai/mock", "anthropic/streamed"]:
            holds(f"a turn over {model}", turn(base, model, folder / model.replace("/", "-")).strip() == TEXT)


def judge(base, model, folder, verdicts):
    """Has ken-laws ask a judge whose answer is fixed. Compares the verdicts that count."""
    source = folder / "source.txt"
    source.write_text("The harbour of Elmar was closed in 1947. A storm had broken its wall.")
    text = "Bad weather destroyed the wall. The harbour was closed in 1948."
    command = [programs / "ken-laws", "--judge", model, "--sources", source, "--text", text]
    done = subprocess.run(command, text=True, env=env_of(base), capture_output=True, timeout=300)
    found = json.loads(done.stdout)["support"]["judge"] if done.stdout else {}
    holds(f"{model} judges", [one["verdict"] for one in found.get("verdicts", [])] == verdicts, found or done.stderr)
    return found


def tiny_model(path):
    """Writes a llama model of one layer with random weights, and a vocabulary of bytes."""
    import gguf
    import numpy as np

    width, heads, inner, context = 64, 4, 128, 2048
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    # The pieces are printable, so that the output is text.
    for piece in ["▁"] + [chr(code) for code in range(33, 127)]:
        tokens.append(piece)
        kinds.append(gguf.TokenType.NORMAL)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:")
    random = np.random.default_rng(7)
    shapes = {"token_embd": (len(tokens), width), "output": (len(tokens), width), "blk.0.attn_q": (width, width),
              "blk.0.attn_k": (width, width), "blk.0.attn_v": (width, width), "blk.0.attn_output": (width, width),
              "blk.0.ffn_gate": (inner, width), "blk.0.ffn_up": (inner, width), "blk.0.ffn_down": (width, inner)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, dtype=np.float32) * 0.1)
    for name in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]:
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama(folder):
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    tiny_model(folder / "tiny.gguf")
    command = [sys.executable, "-m", "llama_cpp.server", "--model", folder / "tiny.gguf", "--model_alias", "tiny", "--n_ctx", "2048",
               "--n_threads", "1", "--n_threads_batch", "1",  # with a model this small, several threads would only wait for each other
               "--host", "127.0.0.1", "--port", str(port), "--api_key", KEY]
    with Server(command, f"{base}/v1/models", folder / "llama.log", KEY):
        # A short answer, because filling the whole context takes the server half a minute of processor time.
        got = ask(base, "openai/tiny", text=json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_output": 64}))
        holds("random weights say something", len(got.get("text", "")) > 0, got)
        holds("how it ended", got["stopReason"] in ("stop", "length"), got)
        # The server sends the head of its answer before it counts the tokens, and then ends the stream without an error. The cause
        # is therefore known only if the window is configured.
        got = ask(base, "openai/tiny", text="word " * 4000)
        holds("a context that is too long", got.get("code") == "unavailable" and "stream ended" in got["message"], got)
        (folder / "models.toml").write_text('[[model]]\nname = "openai/tiny"\nwindow = 2048\n')
        # ken-model refuses only what certainly does not fit, at 12 bytes per token.
        got = ask(base, "openai/tiny", text="word " * 6000, KEN_CONFIG=str(folder / "ken.toml"))
        holds("a context that is longer than the window", got.get("code") == "too_large", got)
        got = ask(base, "openai/tiny", key="sk-wrong")
        holds("a wrong key", got.get("code") == "unauthenticated", got)
        listed = subprocess.run([programs / "ken-model", "list"], env=env_of(base) | {"KEN_MODEL": "openai/tiny"},
                                capture_output=True, text=True, timeout=60).stdout
        holds("models are listed", re.search(r"\btiny\b", listed), listed)


with tempfile.TemporaryDirectory(prefix="ken-servers-") as folder:
    {"litellm": litellm, "llama": llama}[server](Path(folder))
    print(f"{server}: {counted()} checks hold")
