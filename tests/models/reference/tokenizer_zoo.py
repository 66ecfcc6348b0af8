"""Small tokenizers of every kind that ppengine reads, made with Hugging Face's tokenizers from text made here."""
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

WORDS = ("the of and to in a is that for it was on are as with his they be at one have this from or had by hot word but what some we "
         "can out other were all there when up use your how said an each she which do their time if will way about many then them "
         "write would like so these her long make thing see him two has look more day could go come did number sound no most people "
         "my over know water than call first who may down side been now find don't I'm you've we'll HELLO World straße naïve café "
         "Привет мир как дела Ελληνικά γλώσσα 中文 分词 測試 日本語 テスト ひらがな 한국어 문장 العربية النص עברית हिन्दी पाठ ไทย ภาษา 😀 👍🏽 🇩🇪 "
         "1 12 123 1234 2024 3.14 1,000 x=y+z; foo_bar(baz) a[i] {}; // comment <html> </b> http://example.com/?q=1&r=2").split()


def corpus(lines=1500, seed=1):
    rng = random.Random(seed)
    for _ in range(lines):
        yield rng.choice(["", " ", "\t", "  "]) + rng.choice([" ", " ", "  ", ", ", "\n"]).join(rng.choices(WORDS, k=rng.randint(2, 14)))


SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def added(tokenizer, plain=True):
    """Tokens with every flag."""
    tokenizer.add_special_tokens([AddedToken("<|left|>", lstrip=True, special=True), AddedToken("<|right|>", rstrip=True, special=True)])
    tokenizer.add_special_tokens([AddedToken("<|both|>", lstrip=True, rstrip=True, special=True)])
    if plain:
        tokenizer.add_tokens([AddedToken("alone", single_word=True, normalized=False), AddedToken("aloneé", single_word=True),
                              AddedToken("Straße"), AddedToken("<tool", normalized=True), AddedToken("<tool_call>"),
                              AddedToken(" lead", normalized=False), AddedToken("ﬁx", normalized=True), AddedToken(" double  ", normalized=True)])


def byte_level(pre, vocab=700, normalizer=None, post=None, specials=SPECIALS, ignore_merges=False, plain=True):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if post:
        t.post_processor = post
    added(t, plain)
    return t


def split(pattern, behavior="isolated", invert=False, more=()):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert), *more,
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(token="<|endoftext|>", id=0):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B:1", special_tokens=[(token, id)])


def sentencepiece(pre, normalizer, decoder, byte_fallback=True, fuse_unk=True, vocab=900):
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=fuse_unk))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoder
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials[:3], show_progress=False, limit_alphabet=150))
    if byte_fallback:  # byte tokens belong to the vocabulary, not to the added tokens
        import json
        data = json.loads(t.to_str())
        vocabulary = data["model"]["vocab"]
        for b in range(256):
            vocabulary[f"<0x{b:02X}>"] = len(vocabulary)
        t = Tokenizer.from_str(json.dumps(data))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", 1)])
    added(t, False)
    return t


def llama2_normalizer():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def llama2_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def zoo():
    p, n, B = pre_tokenizers, normalizers, pre_tokenizers.ByteLevel
    yield "gpt2", byte_level(B(add_prefix_space=False), post=processors.ByteLevel(trim_offsets=False))
    yield "gpt2_prefix_space", byte_level(B(add_prefix_space=True))
    yield "llama3", byte_level(split(LLAMA3), ignore_merges=True, post=processors.Sequence([processors.ByteLevel(trim_offsets=False), template()]))
    yield "qwen2", byte_level(split(QWEN), normalizer=n.NFC())
    yield "o200k", byte_level(split(O200K))
    yield "deepseek", byte_level(p.Sequence([p.Split(Regex(DEEPSEEK[0]), "isolated"), p.Split(Regex(DEEPSEEK[1]), "isolated"),
                                             p.Split(Regex(DEEPSEEK[2]), "isolated"), B(add_prefix_space=False, use_regex=False)]))
    yield "bloom", byte_level(split(BLOOM))
    yield "starcoder", byte_level(p.Sequence([p.Digits(individual_digits=True), B(add_prefix_space=False)]))
    yield "falcon", byte_level(p.Sequence([p.Punctuation("contiguous"), B(add_prefix_space=False), p.Digits(), p.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))
    yield "nfkc_lower", byte_level(B(add_prefix_space=False), normalizer=n.Sequence([n.NFKC(), n.Lowercase()]))
    yield "nfd_strip_accents", byte_level(B(add_prefix_space=False), normalizer=n.Sequence([n.NFD(), n.StripAccents(), n.Strip()]))
    yield "nfkd", byte_level(B(add_prefix_space=False), normalizer=n.NFKD())
    yield "normalizer_byte_level", byte_level(p.Split(Regex(r"Ġ?\w+|\W"), "isolated"), normalizer=n.ByteLevel(), plain=False)
    yield "whitespace", byte_level(p.Sequence([p.Whitespace(), B(add_prefix_space=True, use_regex=False)]))
    yield "whitespace_split", byte_level(p.Sequence([p.WhitespaceSplit(), p.Punctuation("merged_with_next"), B(add_prefix_space=True, use_regex=False)]))
    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "split_" + behavior, byte_level(split(r"\s|[aeiou]\b", behavior))
        yield "split_string_" + behavior, byte_level(p.Sequence([p.Split("a", behavior), p.Split("e", behavior, invert=True), B(add_prefix_space=False, use_regex=False)]))
    yield "empty_matches", byte_level(split(r"x*|\d{2}+|\w{3}?", "merged_with_previous"))
    yield "fixed_length", byte_level(p.Sequence([p.FixedLength(3), B(add_prefix_space=False, use_regex=False)]))
    yield "llama2", sentencepiece(None, llama2_normalizer(), llama2_decoder())
    yield "llama2_metaspace", sentencepiece(p.Metaspace(prepend_scheme="first", split=False), None, llama2_decoder())
    yield "metaspace_always", sentencepiece(p.Metaspace(prepend_scheme="always"), n.NFKC(), decoders.Metaspace(prepend_scheme="always"), byte_fallback=False)
    yield "metaspace_never", sentencepiece(p.Metaspace(prepend_scheme="never"), None, decoders.Metaspace(prepend_scheme="never"), byte_fallback=False, fuse_unk=False)
    yield "gemma", sentencepiece(p.Split(" ", "merged_with_previous"), n.Replace(" ", "▁"), decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))
    clip = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    clip.normalizer = n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()])
    clip.pre_tokenizer = p.Sequence([p.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True), B(add_prefix_space=False)])
    clip.decoder = decoders.BPEDecoder("</w>")
    clip.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>"], show_progress=False, end_of_word_suffix="</w>"))
    clip.post_processor = processors.RobertaProcessing(("<s>", 1), ("<s>", 1))
    yield "clip", clip
