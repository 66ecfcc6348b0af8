#!/usr/bin/env python3
"""Makes the Unicode tables beside this script (*.inc) by asking Hugging Face's tokenizers what it does with every code point.

Its parts come from several crates with several versions of Unicode (Oniguruma, Rust's char, regex, unicode-normalization,
unicode_categories), and the ids must be the same, so the library itself is the reference. Python's unicodedata serves only as
the list of candidates (compositions) and as the version of PCRE2 10.42 (Unicode 14).

  pip install tokenizers==0.23.3; python3 make_tables.py
"""
import os
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xD7A4)
CHUNK = 100_000


def write(name, what, lines):
    with open(os.path.join(HERE, name), "w") as f:
        f.write(f"// {what}. Made by make_tables.py from tokenizers {tokenizers.__version__}; do not edit.\n")
        row = ""
        for item in lines:
            if len(row) + len(item) > 118:
                f.write(row.rstrip() + "\n")
                row = ""
            row += item + " "
        f.write(row.rstrip() + "\n")
    print(name, len(lines), "entries", os.path.getsize(os.path.join(HERE, name)), "bytes")


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def write_ranges(name, what, points):
    write(name, what, ["{0x%x,0x%x}," % (a, b) for a, b in ranges(points)])


def pieces(pre_tokenizer, points):
    """Code points that survive a splitter that removes the rest."""
    found = set()
    for i in range(0, len(points), CHUNK):
        for text, _ in pre_tokenizer.pre_tokenize_str("".join(map(chr, points[i : i + CHUNK]))):
            found.update(map(ord, text))
    return found


def normalized(normalizer, texts):
    """Every text normalized by itself: NUL is a starter that no normalizer touches."""
    out = []
    for i in range(0, len(texts), CHUNK):
        part = texts[i : i + CHUNK]
        result = normalizer.normalize_str("\0" + "\0".join(part) + "\0").split("\0")
        assert len(result) == len(part) + 2, (len(result), len(part))
        out += result[1:-1]
    return out


def regex_class(pattern):
    return pieces(pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True), POINTS)


def categories():
    out = {}
    for name in ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn").split():
        for c in regex_class(r"\p{%s}" % name):
            out[c] = name
    return out


def utf8_length(c):
    return len(chr(c).encode())


def stand_ins():
    """Code points that Oniguruma and PCRE2 10.42 see differently, with one of the same category and length that both agree on."""
    onig = categories()
    pcre = {c: unicodedata.category(chr(c)) for c in POINTS}
    han = [*range(0x2EBF0, 0x2EE5E), *range(0x31350, 0x323B0)]
    representative = {}
    for c in POINTS:
        key = (onig[c], utf8_length(c))
        # Past the blocks that patterns name by range or script (CJK, kana, Hangul).
        if onig[c] == pcre[c] and key not in representative and not 0x2E80 <= c <= 0xA4CF and c > 0x7F:
            representative[key] = c
    table = [[0x180E, 0x180E, 0x200B]]  # PCRE2 counts it as a space
    for c in POINTS:
        if onig[c] == pcre[c]:
            continue
        stand_in = 0x20000 if c in han else representative[(onig[c], utf8_length(c))]
        if table and table[-1][1] == c - 1 and table[-1][2] == stand_in:
            table[-1][1] = c
        else:
            table.append([c, c, stand_in])
    table.sort()
    write("stand_ins.inc", "Ranges of code points and what stands for them in PCRE2", ["{0x%x,0x%x,0x%x}," % tuple(t) for t in table])


def combining_classes():
    marks = [c for c in POINTS if unicodedata.combining(chr(c))]
    # A mark of a higher class that stands before one of a lower moves behind it; one the library does not know stays.
    low, high = "\u0334", "\u0345"  # classes 1 and 240
    behind = normalized(normalizers.NFD(), [chr(c) + low for c in marks])
    before = normalized(normalizers.NFD(), [high + chr(c) for c in marks])
    out = {}
    for c, first, second in zip(marks, behind, before):
        known = unicodedata.combining(chr(c))
        if (first.startswith(low) and known > 1) or (not second.startswith(high) and known < 240) or chr(c) in (low, high):
            out[c] = known
        else:
            print("not a combining mark for tokenizers: %x" % c)
    runs = []
    for c in sorted(out):
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == out[c]:
            runs[-1][1] = c
        else:
            runs.append([c, c, out[c]])
    write("combining.inc", "Ranges of code points and their canonical combining class", ["{0x%x,0x%x,%d}," % tuple(r) for r in runs])


def decompositions():
    points = [c for c in POINTS if c and c not in HANGUL]
    canonical = normalized(normalizers.NFD(), [chr(c) for c in points])
    compatible = normalized(normalizers.NFKD(), [chr(c) for c in points])
    for name, what, forms, base in (
        ("canonical.inc", "Full canonical decompositions: the code point, how many follow, and these", canonical, None),
        ("compatible.inc", "Full compatibility decompositions where they differ from the canonical ones", compatible, canonical),
    ):
        lines = []
        for i, (c, form) in enumerate(zip(points, forms)):
            if form != (base[i] if base else chr(c)):
                lines.append("0x%x,%d," % (c, len(form)) + "".join("0x%x," % ord(x) for x in form))
        write(name, what, lines)
    pairs, texts = [], []
    for c in points:
        parts = unicodedata.decomposition(chr(c))
        if parts and not parts.startswith("<") and " " in parts:
            a, b = (int(x, 16) for x in parts.split())
            pairs.append((a, b, c))
            texts.append(chr(a) + chr(b))
    lines = []
    for (a, b, c), text in sorted(zip(pairs, normalized(normalizers.NFC(), texts))):
        if text == chr(c):
            lines.append("{0x%x,0x%x,0x%x}," % (a, b, c))
    write("compositions.inc", "Pairs and what they compose to", lines)


def lowercase():
    lines = []
    texts = normalized(normalizers.Lowercase(), [chr(c) for c in POINTS if c])
    for c, text in zip([c for c in POINTS if c], texts):
        if text != chr(c):
            assert len(text) <= 3
            lines.append("{0x%x,{%s}}," % (c, ",".join("0x%x" % ord(x) for x in text)))
    write("lowercase.inc", "Lower case, up to three code points", lines)


def main():
    stand_ins()
    write_ranges("regex_word.inc", r"What Oniguruma's \w matches", regex_class(r"\w"))
    # Rust's own: the splitters separate a class from the rest.
    letters = "a"
    word = pre_tokenizers.Whitespace()
    found = set()
    for i in range(0, len(POINTS), CHUNK):
        part = [chr(c) for c in POINTS[i : i + CHUNK]]
        # "ac" stays one piece exactly where c is a word character (and no space).
        for text, _ in word.pre_tokenize_str(" ".join(letters + c for c in part)):
            if len(text) == 2 and text[0] == letters:
                found.add(ord(text[1]))
    write_ranges("word.inc", r"What \w of Rust's regex matches", found)
    write_ranges("numeric.inc", "Rust's char::is_numeric", single(pre_tokenizers.Digits(individual_digits=True)))
    write_ranges("punctuation.inc", "Punctuation of unicode_categories and ASCII", single(pre_tokenizers.Punctuation("isolated")))
    kept = normalized(normalizers.StripAccents(), [chr(c) for c in POINTS if c])
    write_ranges("mark.inc", "What StripAccents removes", [c for c, text in zip([c for c in POINTS if c], kept) if text == ""])
    combining_classes()
    decompositions()
    lowercase()


def single(splitter):
    """Code points that a splitter cuts out of 'a?a'."""
    found = set()
    for i in range(0, len(POINTS), CHUNK):
        for text, _ in splitter.pre_tokenize_str("a".join(chr(c) for c in POINTS[i : i + CHUNK])):
            if len(text) == 1 and text != "a":
                found.add(ord(text))
    return found


if __name__ == "__main__":
    main()
