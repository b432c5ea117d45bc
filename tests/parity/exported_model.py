#!/usr/bin/python3
"""What an exported Hugging Face directory computes, by code that shares nothing with ours.

usage: exported_model.py FOLDER...
For each folder, reads config.json and the weights (read_safetensors), ids.i32 (windows of
sequence_length + 1 ids) and sequence_length; writes FOLDER/losses.f64: the mean loss over the
windows in fp64, by torch_reference's model. Where transformers is installed, its own model of the
directory must give the same logits.
"""
import importlib.util
import json
import os
import sys

import numpy
import torch
import torch.nn.functional as F

import read_safetensors
import torch_reference


def case_of(config):
    """torch_reference's description of a config.json."""
    if config["model_type"] == "gpt2":
        tied = config.get("tie_word_embeddings", True)
        return {"family": "gpt2", "layers": config["n_layer"], "heads": config["n_head"],
                "norm_epsilon": config["layer_norm_epsilon"],
                "head": "wte.weight" if tied else "lm_head.weight"}
    scaling = config.get("rope_scaling")
    if scaling is not None:
        scaling = dict(scaling, original_context_length=scaling["original_max_position_embeddings"])
    tied = config["tie_word_embeddings"]
    return {"family": "llama", "layers": config["num_hidden_layers"],
            "heads": config["num_attention_heads"], "kv_heads": config["num_key_value_heads"],
            "norm_epsilon": config["rms_norm_eps"], "rope_theta": config["rope_theta"],
            "rope_scaling": scaling,
            "head": "model.embed_tokens.weight" if tied else "lm_head.weight"}


def short_name(name):
    return name[len("transformer."):] if name.startswith("transformer.") else name


def check_transformers(folder, inputs, logits):
    from transformers import AutoModelForCausalLM  # only where it is installed

    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float64)
    theirs = model.eval()(inputs).logits
    difference = float((theirs - logits).abs().max() / logits.abs().max())
    # RMSNorm and rotary angles are fp32 in transformers, whatever the model's type.
    if difference > 1e-5:
        sys.exit("%s: transformers' logits differ by %g" % (folder, difference))


def main():
    torch.set_num_threads(1)
    has_transformers = importlib.util.find_spec("transformers") is not None
    print("transformers is", "installed" if has_transformers else "not installed")
    for folder in sys.argv[1:]:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        weights = {short_name(name): tensor.to(torch.float64)
                   for name, (_, tensor) in read_safetensors.read_folder(folder).items()}
        with open(os.path.join(folder, "sequence_length"), encoding="utf-8") as file:
            length = int(file.read())
        ids = numpy.fromfile(os.path.join(folder, "ids.i32"), dtype=numpy.int32)
        windows = torch.tensor(ids).long().reshape(-1, length + 1)
        logits = torch_reference.logits_of(windows[:, :-1], weights, case_of(config))
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        numpy.array([float(loss)]).tofile(os.path.join(folder, "losses.f64"))
        if has_transformers:
            check_transformers(folder, windows[:, :-1], logits)


if __name__ == "__main__":
    main()
