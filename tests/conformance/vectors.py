"""Compares the vectors of ken-textgen --embed with those of BERT in transformers (Flax), for a random model.

usage: vectors.py PATH/TO/ken-textgen
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import jax
import numpy
from safetensors.numpy import save_file
from transformers import BertConfig, BertTokenizer, BertTokenizerFast, FlaxBertModel

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?äéß"
TEXTS = ["The quick brown fox.", "ÉTÉ, was it not?", "", "a" * 300, "one two three " * 60, "日本 and emoji 🙂!"]


def tensors(parameters, prefix=""):
    """Yields names and tensors as in safetensors files. Flax transposes dense kernels and has other names for some tensors."""
    for name, value in parameters.items():
        if isinstance(value, dict):
            yield from tensors(value, f"{prefix}{name}.")
            continue
        array = numpy.asarray(value)
        new = {"kernel": "weight", "embedding": "weight", "scale": "weight"}.get(name, name)
        yield prefix + new, numpy.ascontiguousarray(array.T if name == "kernel" else array)


def main(program):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "one", "two", "fox", "qu", "##ick"]
        words += list(LETTERS) + ["##" + letter for letter in LETTERS]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        slow = BertTokenizer(str(folder / "vocab.txt"))
        BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
        config = BertConfig(vocab_size=len(words), hidden_size=96, num_hidden_layers=5, num_attention_heads=6,
                            intermediate_size=200, max_position_embeddings=128, initializer_range=0.3)
        model = FlaxBertModel(config, seed=3)
        # Random biases and norms, because the defaults are only zeros and ones.
        noise = iter(jax.random.split(jax.random.PRNGKey(5), 1000))
        parameters = jax.tree_util.tree_map(lambda p: p + 0.1 * jax.random.normal(next(noise), p.shape), model.params)
        config.save_pretrained(folder)
        save_file(dict(tensors(parameters)), folder / "model.safetensors")
        furthest = 0.0
        for first_token in (False, True):
            (folder / "1_Pooling").mkdir(exist_ok=True)
            pooling = {"pooling_mode_cls_token": first_token, "pooling_mode_mean_tokens": not first_token}
            (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
            lines = "".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS)
            ran = subprocess.run([program, "--embed", "--lines", "--model-dir", name], input=lines, text=True,
                                 capture_output=True, check=True)
            answers = [json.loads(line) for line in ran.stdout.splitlines()]
            assert len(answers) == len(TEXTS), ran.stdout
            for text, answer in zip(TEXTS, answers):
                asked = slow(text, return_tensors="np", truncation=True, max_length=128)
                hidden = numpy.asarray(model(**asked, params=parameters).last_hidden_state[0], dtype=numpy.float64)
                wanted = hidden[0] if first_token else hidden.mean(axis=0)
                wanted /= numpy.linalg.norm(wanted)
                assert answer["tokens"] == len(hidden), (text, answer["tokens"], len(hidden))
                furthest = max(furthest, float(numpy.abs(wanted - numpy.array(answer["vector"])).max()))
        assert furthest < 1e-4, furthest
        print(f"vectors: {2 * len(TEXTS)} as those of transformers, the furthest value off by {furthest:.1e}")


main(sys.argv[1])
