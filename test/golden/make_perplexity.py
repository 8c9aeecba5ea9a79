# SPDX-License-Identifier: Apache-2.0
"""Makes perplexity.json: python make_perplexity.py SMOLLM2.gguf GEMMA3.gguf; needs torch, transformers and tokenizers.

What `nibble eval` has to find on prose.txt, chapters 11 and 12 of Jane Austen's Persuasion (1817): the mean negative
log likelihood of every chunk, computed by transformers in float32 from the dequantised weights of the same GGUF file.
Nothing of transformers' own GGUF reading is used: the config comes from the metadata and the weights from the gguf
package, with what llama.cpp's converter did to them undone.
"""

import argparse
import hashlib
import heapq
import json
import re

import gguf
import numpy as np
import tokenizers
import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as Steps
from transformers import AutoConfig, AutoModelForCausalLM

import tiny

CONTEXTS = {512: 8, 2048: 5}  # tokens in a chunk: chunks
USER_DEFINED = gguf.TokenType.USER_DEFINED


class File:
    def __init__(self, path):
        self.path = path
        self.reader = gguf.GGUFReader(path)
        self.arch = self.get("general.architecture")

    def get(self, key, default=None):
        field = self.reader.fields.get(key.format(arch=getattr(self, "arch", None)))
        return field.contents() if field else default


# ---- the model ------------------------------------------------------------------------------------------------------


def config_of(file):
    heads = file.get("{arch}.attention.head_count")
    config = dict(
        hidden_size=file.get("{arch}.embedding_length"), num_hidden_layers=file.get("{arch}.block_count"),
        intermediate_size=file.get("{arch}.feed_forward_length"), num_attention_heads=heads,
        num_key_value_heads=file.get("{arch}.attention.head_count_kv"),
        vocab_size=len(file.get("tokenizer.ggml.tokens")),
        head_dim=file.get("{arch}.attention.key_length", file.get("{arch}.embedding_length") // heads),
        rms_norm_eps=file.get("{arch}.attention.layer_norm_rms_epsilon"),
        max_position_embeddings=file.get("{arch}.context_length"), tie_word_embeddings=True)
    full = {"rope_type": "default", "rope_theta": file.get("{arch}.rope.freq_base")}
    if file.arch == "llama":
        return AutoConfig.for_model("llama", rope_parameters=full, **config)
    local = {"rope_type": "default", "rope_theta": 10000.0}
    return AutoConfig.for_model(
        "gemma3_text", query_pre_attn_scalar=config["head_dim"],
        sliding_window=file.get("{arch}.attention.sliding_window"),
        rope_parameters={"full_attention": full, "sliding_attention": local}, **config)


def model_of(file):
    config = config_of(file)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    arch_id = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == file.arch)
    name_map = gguf.get_tensor_name_map(arch_id, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in file.reader.tensors}
    for name, parameter in model.named_parameters():
        tensor = tensors.pop(name_map.get_name(name, (".weight", ".bias")))
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(parameter.shape)
        if file.arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            pairs = numbers.reshape(-1, config.head_dim // 2, 2, numbers.shape[-1])
            numbers = pairs.swapaxes(1, 2).reshape(parameter.shape)
        if file.arch == "gemma3" and name.endswith("norm.weight"):
            numbers = numbers - 1
        parameter.data = torch.from_numpy(numbers.copy())
    assert not tensors, f"{file.path}: unused {list(tensors)}"
    return model


# ---- the tokens -----------------------------------------------------------------------------------------------------


def tokenize(file, text):
    return {"gpt2": byte_level, "llama": by_scores}[file.get("tokenizer.ggml.model")](file, text)


def byte_level(file, text):
    assert file.get("tokenizer.ggml.pre") == "smollm"
    vocabulary = {token: id for id, token in enumerate(file.get("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in file.get("tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = Steps([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
    return tokenizer.encode(text).ids


def by_scores(file, text):
    """SentencePiece's merging: of all neighbours that form a token, those with the best score, the leftmost first."""
    tokens, scores = file.get("tokenizer.ggml.tokens"), file.get("tokenizer.ggml.scores")
    types = file.get("tokenizer.ggml.token_type")
    assert not file.get("tokenizer.ggml.add_space_prefix")
    vocabulary = {token: id for id, token in enumerate(tokens)}
    user_defined = {token for token, kind in zip(tokens, types) if kind == USER_DEFINED}
    longest_first = "|".join(map(re.escape, sorted(user_defined, key=len, reverse=True)))
    ids = []
    for part in re.split(f"({longest_first})", text):
        ids += [vocabulary[part]] if part in user_defined else merge(part.replace(" ", "\u2581"), vocabulary, scores)
    return ids


def merge(text, vocabulary, scores):
    pieces, after = list(text), list(range(1, len(text) + 1))
    before = [i - 1 for i in range(len(text))]
    queue = []

    def offer(left):
        right = after[left] if left >= 0 else len(pieces)
        if right < len(pieces) and (id := vocabulary.get(pieces[left] + pieces[right])) is not None:
            heapq.heappush(queue, (-scores[id], left, right, pieces[left] + pieces[right]))

    for i in range(len(pieces)):
        offer(i)
    while queue:
        _, left, right, piece = heapq.heappop(queue)
        if pieces[left] is None or after[left] != right or pieces[left] + (pieces[right] or "") != piece:
            continue
        pieces[left], pieces[right], after[left] = piece, None, after[right]
        if after[left] < len(pieces):
            before[after[left]] = left
        offer(before[left])
        offer(left)
    return [vocabulary[piece] for piece in pieces if piece is not None]


# ---- the figures ----------------------------------------------------------------------------------------------------


def chunk_nll(model, ids):
    """Mean negative log likelihood of the tokens after the middle one, each predicted from all before it."""
    middle = len(ids) // 2
    with torch.no_grad():
        hidden = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, middle:-1]
        losses = [torch.nn.functional.cross_entropy(model.lm_head(part), target, reduction="sum")
                  for part, target in zip(hidden.split(128), torch.tensor(ids[middle + 1:]).split(128))]
    return sum(loss.double().item() for loss in losses) / len(hidden)


def measure(path):
    file = File(path)
    ids = tokenize(file, (tiny.HERE / "prose.txt").read_text())
    bos = file.get("tokenizer.ggml.bos_token_id") if file.get("tokenizer.ggml.add_bos_token") else None
    model = model_of(file)
    result = {
        "name": file.get("general.name"),
        "file_sha256": hashlib.sha256(open(path, "rb").read()).hexdigest(),
        "tokens": len(ids),
        "ids_sha256": hashlib.sha256(np.array(ids, "<i4").tobytes()).hexdigest(),
        "chunk_nll": {},
    }
    for context, chunks in CONTEXTS.items():
        parts = [ids[i * context:(i + 1) * context] for i in range(chunks)]
        nll = [chunk_nll(model, part if bos is None else [bos, *part[1:]]) for part in parts]
        result["chunk_nll"][context] = [round(value, 6) for value in nll]
        print(f"{result['name']}, context {context}: perplexity {np.exp(np.mean(nll)):.4f} over {chunks} chunks")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("smollm2", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("gemma3", help="gemma-3-270m-q4_k_m.gguf")
    paths = vars(parser.parse_args())
    torch.set_num_threads(2)
    result = {key: measure(path) for key, path in paths.items()}
    (tiny.HERE / "perplexity.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
