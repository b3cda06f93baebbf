#!/usr/bin/env python3
"""Compares the closure of ken-rep with that of clingo on random theories with variables and negation, and checks all proofs.

Usage: clingo_oracle.py KEN_REP [THEORIES]. Needs the Python module clingo (PyPI), and reports if it is missing.
"""

import json
import random
import subprocess
import sys
import time

PREDICATES = [("p", 1), ("q", 1), ("r", 1), ("s", 2), ("t", 2)]
CONSTANTS = ["a", "b", "c"]
VARIABLES = ["?x", "?y", "?z"]


def statement(chance, terms):
    """A random statement: (is affirmed, predicate, terms)."""
    name, arity = chance.choice(PREDICATES)
    return (chance.random() < 0.75, name, tuple(chance.choice(terms) for _ in range(arity)))


def theory(chance):
    facts = [statement(chance, CONSTANTS) for _ in range(chance.randrange(8))]
    rules = []
    while len(rules) < chance.randrange(1, 9):
        terms = CONSTANTS + VARIABLES if chance.random() < 0.7 else CONSTANTS
        premises = [statement(chance, terms) for _ in range(chance.randrange(4))]
        conclusion = statement(chance, terms)
        if variables([conclusion]) <= variables(premises):
            rules.append((premises, conclusion))
    return facts, rules


def variables(statements):
    return {term for _, _, terms in statements for term in terms if term.startswith("?")}


def words(affirmed, name, terms):
    return ("" if affirmed else "not ") + " ".join((name,) + terms)


def opposite(one):
    return (not one[0], one[1], one[2])


def atom(affirmed, name, terms):
    terms = ",".join(term.replace("?", "").upper() if term.startswith("?") else term for term in terms)
    return "%s_%s(%s)" % ("yes" if affirmed else "no", name, terms)


def program(facts, rules):
    """Modus ponens, and modus tollens as the contrapositives whose variables are bound; a premise given twice counts once."""
    lines = [atom(*fact) + "." for fact in facts]
    for premises, conclusion in rules:
        premises = list(dict.fromkeys(premises))
        turned = [(premises, conclusion)]
        for place, premise in enumerate(premises):
            rest = premises[:place] + premises[place + 1 :]
            turned.append(([opposite(conclusion)] + rest, opposite(premise)))
        for body, head in turned:
            if variables([head]) <= variables(body):
                lines.append(atom(*head) + (" :- " + ", ".join(atom(*part) for part in body) if body else "") + ".")
    return "\n".join(lines)


def closure(clingo, text):
    control = clingo.Control(["--warn=none"])
    control.add("base", [], text)
    control.ground([("base", [])])
    found = set()
    with control.solve(yield_=True) as models:
        for symbol in models.model().symbols(atoms=True):
            sign, name = symbol.name.split("_")
            found.add(words(sign == "yes", name, tuple(str(term) for term in symbol.arguments)))
    return found


def parse(text):
    affirmed = not text.startswith("not ")
    name, *terms = text.removeprefix("not ").split()
    return (affirmed, name, tuple(terms))


def instance(patterns, statements, binding=None):
    """Whether one binding of the variables makes each pattern equal to the statement at the same index."""
    binding = dict(binding or {})
    for (sign, name, terms), (other_sign, other_name, other_terms) in zip(patterns, statements):
        if (sign, name, len(terms)) != (other_sign, other_name, len(other_terms)):
            return False
        for term, other in zip(terms, other_terms):
            if (binding.setdefault(term, other) if term.startswith("?") else term) != other:
                return False
    return len(patterns) == len(statements)


def check(facts, rules, answer):
    held = {words(*fact) for fact in facts}
    for step in answer["reasoning_chain"]:
        assert set(step["premises"]) <= held, step
        premises, conclusion = rules[step["rule"]]
        premises = list(dict.fromkeys(premises))
        used = [parse(text) for text in step["premises"]]
        concluded = parse(step["conclusion"])
        if step["type"] == "modus_tollens":
            options = [
                ([opposite(conclusion)] + premises[:place] + premises[place + 1 :] + [opposite(premise)])
                for place, premise in enumerate(premises)
            ]
        else:
            options = [premises + [conclusion]]
        assert any(instance(option, used + [concluded]) for option in options), (step, rules[step["rule"]])
        held.add(step["conclusion"])


def main():
    try:
        import clingo
    except ImportError:
        print("  closure against clingo: skipped, the Python module clingo is not installed")
        return 0
    tool, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    chance = random.Random(3)
    theories = [theory(chance) for _ in range(count)]
    lines = "".join(
        json.dumps({"facts": [words(*fact) for fact in facts],
                    "rules": [[[words(*part) for part in premises], words(*conclusion)] for premises, conclusion in rules]})
        + "\n"
        for facts, rules in theories
    )
    start = time.perf_counter()
    answers = subprocess.run([tool, "--lines"], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = time.perf_counter() - start
    start = time.perf_counter()
    expected = [closure(clingo, program(facts, rules)) for facts, rules in theories]
    theirs = time.perf_counter() - start
    different = steps = derived = contradictory = 0
    for (facts, rules), line, model in zip(theories, answers, expected, strict=True):
        answer = json.loads(line)
        given = {words(*fact) for fact in facts}
        different += set(answer["conclusions"]) != model - given
        check(facts, rules, answer)
        steps += len(answer["reasoning_chain"])
        derived += bool(answer["conclusions"])
        contradictory += not answer["validation"]["is_valid"]
    print(f"  closure against clingo {clingo.__version__}: {count} theories ({derived} derive something, "
          f"{contradictory} contradict themselves), {different} differ, {steps} steps checked; "
          f"ken-rep {ours:.2f} s, clingo {theirs:.2f} s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
