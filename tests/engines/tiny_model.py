"""Writes a tiny model with random weights, and an adapter for it: enough for an engine to serve, on a CPU, in no time.

usage: tiny_model.py MODEL_DIR [ADAPTER_DIR]

The model directory gets a Llama's configuration and a tokenizer of one token per byte. Weights are left to the engine
(vLLM: --load-format dummy). The adapter needs `safetensors` and numpy.
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, LAYERS, HEADS, HEAD_DIM, VOCABULARY, CONTEXT = 64, 2, 2, 32, 512, 2048


def write(path, content):
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_model(directory):
    specials = ["<pad>", "<s>", "</s>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Every number below the vocabulary's size is a token, so that any prompt of token IDs can be told as text.
    names = specials + letters
    names += [f"<{number}>" for number in range(len(names), VOCABULARY)]
    tokenizer = Tokenizer(models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    write(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "model_max_length": CONTEXT,
            "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
        },
    )
    write(
        directory / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": 2 * HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": 1,
            "head_dim": HEAD_DIM,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "torch_dtype": "float32",
        },
    )


def write_adapter(directory):
    import numpy
    from safetensors.numpy import save_file

    rank = 4
    random = numpy.random.default_rng(1)
    weights = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = random.normal(0, 0.1, (rank, HIDDEN)).astype("float32")
        weights[f"{name}.lora_B.weight"] = random.normal(0, 0.1, (HEADS * HEAD_DIM, rank)).astype("float32")
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights, directory / "adapter_model.safetensors")
    write(
        directory / "adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "tiny",
            "r": rank,
            "lora_alpha": rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": ["q_proj"],
        },
    )


if __name__ == "__main__":
    write_model(pathlib.Path(sys.argv[1]))
    if len(sys.argv) > 2:
        write_adapter(pathlib.Path(sys.argv[2]))
