#!/usr/bin/env python3
"""Compares ppengine's tokenizer with Hugging Face's on random text of every kind, for every tokenizer of the zoo.

  compare_tokenizers.py TOKENIZE_RECORDS_BINARY [texts per tokenizer] [seed] [name ...]
"""
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizer_zoo import WORDS, zoo

MARKERS = ["<|endoftext|>", "<|im_start|>", "<|left|>", "<|right|>", "<|both|>", "alone", "aloneé", "Straße", "<tool", "<tool_call>", " lead", "ﬁx",
           "<s>", "</s>", "<unk>", "<0x41>", "▁", "</w>"]
SPACES = [" ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u180e", "\u200b", "\x85", "\x0b", "\x1c", "\u2003", "\n\n  \n"]


def assigned():
    return [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


POINTS = assigned()
MARKS = [c for c in POINTS if unicodedata.combining(chr(c))]
LETTERS = [c for c in POINTS if unicodedata.category(chr(c))[0] in "LN"]
SPECIAL = [c for c in POINTS if unicodedata.decomposition(chr(c)) or chr(c).lower() != chr(c)]


def piece(rng):
    kind = rng.randrange(14)
    if kind < 4:
        return rng.choice(WORDS)
    if kind < 6:
        return rng.choice(SPACES)
    if kind == 6:
        return rng.choice(MARKERS)
    if kind == 7:
        return chr(rng.choice(POINTS))
    if kind == 8:
        return chr(rng.randrange(0x20, 0x7F)) * rng.randint(1, 3)
    if kind == 9:
        return chr(rng.choice(LETTERS)) + "".join(chr(rng.choice(MARKS)) for _ in range(rng.randint(0, 3)))
    if kind == 10:
        return chr(rng.choice(SPECIAL))
    if kind == 11:
        return str(rng.randrange(10 ** rng.randint(1, 8)))
    if kind == 12:
        return rng.choice("'’") + rng.choice(["s", "S", "t", "re", "VE", "m", "LL", "d", "ſ", "x"])
    return chr(rng.randrange(0x80, 0x3000))


def text(rng):
    return "".join(piece(rng) + rng.choice(["", "", " "]) for _ in range(rng.choice([1, 2, 5, 10, 30])))


def main():
    binary, count, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    names, total, bad = sys.argv[4:], 0, 0
    for name, tokenizer in zoo():
        if names and name not in names:
            continue
        rng = random.Random(f"{name}{seed}")
        texts = ["", " ", "\n"] + [text(rng) for _ in range(count)]
        with tempfile.NamedTemporaryFile(suffix=".json") as f:
            tokenizer.save(f.name)
            from tokenizers import Tokenizer
            reference = Tokenizer.from_file(f.name)
            records = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
            run = subprocess.run([binary, f.name], input=records, capture_output=True)
        if run.returncode != 0:
            print(name, "FAILED:", run.stderr.decode()[-500:])
            bad += 1
            continue
        at, out, wrong, panics = 0, run.stdout, 0, 0

        def field(size):
            nonlocal at
            (n,) = struct.unpack_from("<I", out, at)
            at += 4 + n * size
            return out[at - n * size : at]

        for t in texts:
            ids = list(struct.unpack(f"<{len(d) // 4}i", d)) if (d := field(4)) else []
            plain = list(struct.unpack(f"<{len(d) // 4}i", d)) if (d := field(4)) else []
            shown, full, streamed = (field(1).decode() for _ in range(3))
            try:
                want = reference.encode(t).ids
            except BaseException as error:  # a panic in the library itself: nothing to compare with
                if isinstance(error, KeyboardInterrupt):
                    raise
                panics += 1
                continue
            checks = {"ids": (ids, want), "plain": (plain, reference.encode(t, add_special_tokens=False).ids),
                      "decode": (shown, reference.decode(want)), "decode all": (full, reference.decode(want, skip_special_tokens=False)),
                      "stream": (streamed, shown)}
            for what, (got, expected) in checks.items():
                total += 1
                if got != expected:
                    wrong += 1
                    if wrong <= 3:
                        print(f"{name} {what} {t!r}\n  got      {got!r}\n  expected {expected!r}")
                        if what == "ids":
                            print("  tokens  ", [reference.id_to_token(i) for i in got], "\n  expected", [reference.id_to_token(i) for i in expected])
        bad += wrong
        print(f"{name}: {len(texts)} texts, {wrong} differences" + (f", {panics} panics of the reference" if panics else ""))
    print(f"{total} comparisons, {bad} differences")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
