#!/usr/bin/env python3
"""Makes the corpora of the fuzz targets of models from tests/models/data and from small files written here."""
import io
import json
import os
import struct
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "models", "data")


def put(target, name, content):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def safetensors(header, data):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


def program(changes=None, compression=zipfile.ZIP_STORED, strides=(3, 1), expression="Symbol('s77', positive=True, integer=True)"):
    """A linear layer as torch.export.save writes it, in as few fields as are read."""
    number, tensor = lambda n: {"as_int": n}, lambda n: {"as_tensor": {"name": n}}
    batch = {"as_expr": {"expr_str": expression, "hint": {"as_int": 4}}}
    value = lambda *sizes: {"dtype": 7, "sizes": list(sizes)}
    node = {"target": "torch.ops.aten.linear.default", "outputs": [tensor("linear")], "is_hop_single_tensor_return": None,
            "inputs": [{"name": n, "arg": tensor(v), "kind": 1} for n, v in (("input", "x"), ("weight", "p_weight"))],
            "metadata": {"nn_module_stack": "L__self__,,torch.nn.modules.linear.Linear", "stack_trace": 'File "net.py", line 12, in forward'}}
    graph = {"inputs": [tensor("p_weight"), tensor("x")], "outputs": [tensor("linear")], "nodes": [node],
             "tensor_values": {"p_weight": value(number(2), number(3)), "x": value(batch, number(3)), "linear": value(batch, number(2))},
             "sym_int_values": {"s77": batch}, "is_single_tensor_return": False}
    signature = {"input_specs": [{"parameter": {"arg": {"name": "p_weight"}, "parameter_name": "weight"}}, {"user_input": {"arg": tensor("x")}}],
                 "output_specs": [{"user_output": {"arg": tensor("linear")}}]}
    model = {"graph_module": {"graph": graph, "signature": signature}, "schema_version": {"major": 8, "minor": 20}, "range_constraints": {"s77": {"min_val": 2, "max_val": 64}}}
    meta = {"dtype": 7, "sizes": [number(2), number(3)], "strides": [number(s) for s in strides], "storage_offset": number(0), "requires_grad": True}
    weights = {"config": {"weight": {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": meta}}}
    model.update(changes or {})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in (("models/model.json", json.dumps(model)), ("data/weights/model_weights_config.json", json.dumps(weights)), ("data/weights/weight_0", bytes(range(24)))):
            archive.writestr(zipfile.ZipInfo("net/" + name), content, compress_type=compression)
    return out.getvalue()


def tokenizer(**parts):
    vocab = {c: i for i, c in enumerate(["<unk>", "<s>", "a", "b", "ab", "Ġ", "▁", "▁a", "<0xFF>", "b</w>"])}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a b", "▁ a"], "unk_token": "<unk>", **parts.pop("model", {})}
    added = [{"id": 1, "content": "<s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False},
             {"id": 10, "content": "ab", "special": False, "single_word": True, "lstrip": True, "rstrip": True, "normalized": True}]
    whole = {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model, **parts}
    return json.dumps(whole, ensure_ascii=False) + "\0some text ab <s>"


def main():
    for name in ("u1", "bi4", "li8", "rows", "version2"):
        put("npy", name, open(os.path.join(DATA, "npy", name + ".npy"), "rb").read())
    for name in ("gpt2_tied_f32", "llama_bf16_sharded"):
        put("config", name, open(os.path.join(DATA, name, "config.json")).read())
    put("config", "llama_old", '{"model_type":"llama","hidden_size":8,"num_attention_heads":2,"rope_theta":1e4,"rope_scaling":{"type":"dynamic","factor":2.0},"eos_token_id":[1,2],"num_hidden_layers":2}')
    put("config", "gpt2_small", '{"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":1,"tie_word_embeddings":false,"sliding_window":null}')
    put("safetensors", "three", safetensors({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                                             "b": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [8, 14]}, "c": {"dtype": "F16", "shape": [], "data_offsets": [14, 16]}}, bytes(range(16))))
    put("safetensors", "empty", safetensors({}, b""))
    put("safetensors", "zero", safetensors({"z": {"dtype": "I64", "shape": [0, 5], "data_offsets": [0, 0]}}, b""))
    put("safetensors", "overlap", safetensors({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}, b"abc"))
    put("safetensors", "huge", safetensors({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}}, b"abcd"))
    put("program", "linear", program())
    put("program", "strided", program(strides=(1, 2), expression="Mul(Integer(2), FloorDiv(Symbol('s77', integer=True), Integer(2)))"))
    put("program", "beyond", program(strides=(400, 1)))
    put("program", "version", program({"schema_version": {"major": 99, "minor": 1}}))
    put("program", "nothing", program({"graph_module": {}}))
    put("program", "packed", program(compression=zipfile.ZIP_DEFLATED))
    split = lambda p: {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    put("tokenizer", "gpt2", tokenizer(pre_tokenizer=byte_level, decoder=byte_level, post_processor=byte_level, normalizer={"type": "NFC"}))
    put("tokenizer", "llama3", tokenizer(model={"ignore_merges": True}, decoder=byte_level, pre_tokenizer={"type": "Sequence", "pretokenizers": [split(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"), byte_level]},
                                         post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}))
    put("tokenizer", "llama2", tokenizer(model={"byte_fallback": True, "fuse_unk": True}, normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                                         decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}))
    put("tokenizer", "metaspace", tokenizer(pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}, decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
                                            normalizer={"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}]}))
    put("tokenizer", "others", tokenizer(model={"end_of_word_suffix": "</w>", "continuing_subword_prefix": ""}, decoder={"type": "BPEDecoder", "suffix": "</w>"},
                                         pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Whitespace"}, split(r"[a-f[x]]\b|\w{2}+|\h")]}))


if __name__ == "__main__":
    main()
