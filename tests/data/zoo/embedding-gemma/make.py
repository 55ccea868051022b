#!/usr/bin/env python3
"""Makes this model and its golden vectors: Gemma 3 with attention that looks both ways, mean
pooling, two dense layers and a norm, as EmbeddingGemma has them, with random weights.

With transformers 5.23.0, torch 2.15.0 and sentence-transformers 6.2.0, in this folder: make.py
"""
import json
import pathlib

import safetensors.torch
import sentence_transformers
import torch
import transformers
from sentence_transformers.models import Dense, Normalize, Pooling
from transformers.models.gemma3 import modeling_gemma3

HERE = pathlib.Path(__file__).parent
HIDDEN, VOCABULARY, INNER, OUTPUTS = 64, 192, 160, 48
LENGTHS = [5, 37, 150]
CONFIG = {
    "architectures": ["Gemma3TextModel"], "model_type": "gemma3_text", "attention_bias": False,
    "attention_dropout": 0.0, "attn_logit_softcapping": None, "final_logit_softcapping": None,
    "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "head_dim": 32,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": HIDDEN, "initializer_range": 0.02,
    "intermediate_size": 96, "max_position_embeddings": 2048, "num_attention_heads": 4,
    "num_hidden_layers": 4, "num_key_value_heads": 1, "query_pre_attn_scalar": 32,
    "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": None,
    "rope_theta": 1000000.0, "sliding_window": 16, "_sliding_window_pattern": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                    "sliding_attention"],
    "torch_dtype": "bfloat16", "use_bidirectional_attention": True, "use_cache": True,
    "vocab_size": VOCABULARY,
}
MODULES = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"),
           ("3_Dense", "Dense"), ("4_Normalize", "Normalize")]


def write_json(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_files():
    write_json(HERE / "config.json", CONFIG)
    write_json(HERE / "modules.json",
               [{"idx": i, "name": str(i), "path": path,
                 "type": f"sentence_transformers.models.{name}"}
                for i, (path, name) in enumerate(MODULES)])
    write_json(HERE / "1_Pooling/config.json",
               {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": False,
                "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
                "include_prompt": True})
    write_json(HERE / "config_sentence_transformers.json",
               {"prompts": {"query": "task: search result | query: ",
                            "document": "title: none | text: "}, "default_prompt_name": None})
    write_json(HERE / "sentence_bert_config.json", {"max_seq_length": 1024, "do_lower_case": False})
    for path, inputs, outputs, bias in (("2_Dense", HIDDEN, INNER, False),
                                        ("3_Dense", INNER, OUTPUTS, True)):
        write_json(HERE / path / "config.json",
                   {"in_features": inputs, "out_features": outputs, "bias": bias,
                    "activation_function": "torch.nn.modules.linear.Identity"})
        tensors = {"linear.weight": torch.randn(outputs, inputs) / inputs ** 0.5}
        if bias:
            tensors["linear.bias"] = torch.randn(outputs) * 0.01
        safetensors.torch.save_file(tensors, HERE / path / "model.safetensors",
                                    metadata={"format": "pt"})


def make_weights(model):
    for name, tensor in model.named_parameters():
        if tensor.dim() == 1:
            value = torch.randn_like(tensor) * 0.2
        elif "embed_tokens" in name:
            value = torch.randn_like(tensor) / 8
        else:
            value = torch.randn_like(tensor) * 0.7 / tensor.shape[1] ** 0.5
        tensor.data = value.bfloat16().float()
    tensors = {name: tensor.data.bfloat16().contiguous()
               for name, tensor in model.named_parameters()}
    safetensors.torch.save_file(tensors, HERE / "model.safetensors", metadata={"format": "pt"})


def rounded(x):
    return x.bfloat16().float()


class Roundings:
    """Rounds the inputs of every matrix product, and the attention probabilities as well."""

    def __init__(self, model, probabilities):
        self.hooks = [module.register_forward_pre_hook(lambda _, given: (rounded(given[0]),))
                      for module in model.modules() if isinstance(module, torch.nn.Linear)]
        self.eager = modeling_gemma3.eager_attention_forward
        # The second product is given rounded probabilities by a softmax that rounds them.
        self.softmax = torch.nn.functional.softmax

        def attention(module, query, key, value, *args, **named):
            if probabilities:
                torch.nn.functional.softmax = lambda *a, **n: rounded(self.softmax(*a, **n))
            try:
                return self.eager(module, rounded(query), rounded(key), rounded(value), *args,
                                  **named)
            finally:
                torch.nn.functional.softmax = self.softmax
        modeling_gemma3.eager_attention_forward = attention

    def __enter__(self):
        return self

    def __exit__(self, *_):
        modeling_gemma3.eager_attention_forward = self.eager
        for hook in self.hooks:
            hook.remove()


def vectors(model, texts, round_last):
    pooling = Pooling.load(str(HERE / "1_Pooling"))
    layers = [pooling, Dense.load(str(HERE / "2_Dense")), Dense.load(str(HERE / "3_Dense")),
              Normalize()]
    result = []
    for ids in texts:
        hidden = model(input_ids=ids[None]).last_hidden_state
        features = {"token_embeddings": rounded(hidden) if round_last else hidden,
                    "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        for layer in layers:
            features = layer(features)
        result.append(features["sentence_embedding"][0])
    return torch.stack(result)


def main():
    torch.manual_seed(20261127)
    torch.set_num_threads(1)
    write_files()
    config = transformers.Gemma3TextConfig(**CONFIG, attn_implementation="eager")
    model = transformers.Gemma3TextModel(config).float().eval()
    make_weights(model)
    texts = [torch.randint(3, VOCABULARY, (length,)) for length in LENGTHS]
    with torch.no_grad():
        golden = {"embedding_f32": vectors(model, texts, False)}
        for name, probabilities in (("embedding_bf16in", False), ("embedding_bf16p", True)):
            with Roundings(model, probabilities):
                golden[name] = vectors(model, texts, True)
    move = golden["embedding_bf16p"] - golden["embedding_bf16in"]
    rms, largest = move.square().mean().sqrt().item(), move.abs().max().item()
    golden["ids"] = torch.cat(texts).int()
    golden["lengths"] = torch.tensor(LENGTHS, dtype=torch.int32)
    safetensors.torch.save_file({name: value.contiguous() for name, value in golden.items()},
                                HERE / "golden.safetensors")
    whole = (golden["embedding_bf16in"] - golden["embedding_f32"]).square().mean().sqrt().item()
    cosines = golden["embedding_f32"] @ golden["embedding_f32"].T
    write_json(HERE / "golden.json",
               {"lengths": LENGTHS, "dimension": OUTPUTS, "rms_bf16in_minus_f32": whole,
                "rms_bf16p_minus_bf16in": rms, "max_bf16p_minus_bf16in": largest,
                "cosines_f32": cosines.flatten().tolist(),
                "tolerance_rms": 1.5 * rms, "tolerance_max": 2.5 * largest,
                "transformers": transformers.__version__, "torch": torch.__version__,
                "sentence_transformers": sentence_transformers.__version__})


if __name__ == "__main__":
    main()
