#!/usr/bin/python3
"""An independent reader of Hugging Face directories: struct, json and torch alone.

usage: read_safetensors.py FOLDER...
For each folder, writes FOLDER/values.f32 (every tensor as float32, by name) and FOLDER/shapes.txt
("NAME DTYPE DIM...", by name). Exits 1, saying why, if a folder is not as transformers would have it.
"""
import json
import os
import struct
import sys

import torch

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def check(condition, path, what):
    if not condition:
        sys.exit("%s: %s" % (path, what))


def read_file(path):
    """{name: (dtype name, tensor)} and the bytes of the tensors."""
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    check(length % 8 == 0, path, "the header is not padded to 8 bytes")
    header = json.loads(content[8 : 8 + length].decode("utf-8"))
    check(header.pop("__metadata__") == {"format": "pt"}, path, "transformers wants format pt")
    data = bytearray(content[8 + length :])
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, previous = entry["data_offsets"][0], end
        end = entry["data_offsets"][1]
        check(begin == previous, path, name + " does not begin where the tensor before it ends")
        dtype = DTYPES[entry["dtype"]]
        item = torch.empty((), dtype=dtype).element_size()
        tensor = torch.frombuffer(data, dtype=dtype, offset=begin, count=(end - begin) // item)
        tensors[name] = (entry["dtype"], tensor.reshape(entry["shape"]))
    check(end == len(data), path, "the tensors do not fill the file")
    return tensors, end


def read_folder(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_file(os.path.join(folder, "model.safetensors"))[0]
    with open(index) as file:
        described = json.load(file)
    tensors, total = {}, 0
    for name in sorted(set(described["weight_map"].values())):
        shard, size = read_file(os.path.join(folder, name))
        for tensor in shard:
            check(described["weight_map"][tensor] == name, index, tensor + " is elsewhere")
        tensors.update(shard)
        total += size
    check(set(tensors) == set(described["weight_map"]), index, "names other tensors")
    check(total == described["metadata"]["total_size"], index, "total_size is wrong")
    return tensors


def main():
    for folder in sys.argv[1:]:
        tensors = read_folder(folder)
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        check(config["architectures"][0].endswith(("LMHeadModel", "ForCausalLM")), folder, "architectures")
        with open(os.path.join(folder, "values.f32"), "wb") as values, open(
            os.path.join(folder, "shapes.txt"), "w"
        ) as shapes:
            for name in sorted(tensors):
                dtype, tensor = tensors[name]
                values.write(tensor.to(torch.float32).contiguous().numpy().tobytes())
                shapes.write(" ".join([name, dtype] + [str(d) for d in tensor.shape]) + "\n")


if __name__ == "__main__":
    main()
