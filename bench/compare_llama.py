#!/usr/bin/env python3
"""Reads and writes text with heed and with llama.cpp on the CPU, GPT-2's shape with random weights, and compares speed.

    cmake -S llama.cpp -B build -D CMAKE_BUILD_TYPE=Release -D GGML_NATIVE=ON && cmake --build build --target llama-bench
    python3 bench/compare_llama.py build/bin/llama-bench

`bench_generate` and `llama-bench` run in turn, each in a process of its own, with the same threads: they read a prompt,
then write tokens after it, one text at a time. Prints a line of JSON for weights of f32, bf16 and 8 bits (q8_0 in
llama.cpp); figures are tokens per second, medians of the alternating runs:

  heed, llama                  while writing, the mean of all tokens; `ratio` is heed's over llama.cpp's
  heed_prompt, llama_prompt    while reading the prompt, and `prompt_ratio`

llama.cpp runs with and without flash attention, and the faster one counts. Keys and
values are f32 in heed and f16 in llama.cpp, whose tool offers no f32. llama-bench draws the next token at random, heed
takes the most probable one. Needs gguf and numpy, for the model files.
"""

import json
import pathlib
import statistics
import subprocess
import tempfile
from functools import partial

import peers

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT = 12, 768, 12, 50_257, 1024  # the defaults of bench_generate
FORMS = {"f32": "F32", "bf16": "BF16", "int8": "Q8_0"}  # and what llama.cpp calls them


def write_model(path, kind):
    """A GGUF file of GPT-2's shape; as in every such file, vectors and positions are f32."""
    import gguf
    import numpy as np

    random, writer = np.random.default_rng(1), gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(getattr(gguf.LlamaFileType, "ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"))
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(VOCABULARY)

    def matrix(name, rows, columns, form=kind):
        values, form = 0.02 * random.standard_normal((rows, columns), np.float32), gguf.GGMLQuantizationType[form]
        writer.add_tensor(name + ".weight", gguf.quantize(values, form), raw_dtype=form)

    def bias(name, size):
        writer.add_tensor(name + ".bias", np.zeros(size, np.float32))

    def norm(name):
        writer.add_tensor(name + ".weight", np.ones(WIDTH, np.float32))
        bias(name, WIDTH)

    def linear(name, outputs, inputs):
        matrix(name, outputs, inputs)
        bias(name, outputs)

    matrix("token_embd", VOCABULARY, WIDTH)  # of the output, too
    matrix("position_embd", CONTEXT, WIDTH, "F32")
    norm("output_norm")
    for i in range(LAYERS):
        norm(f"blk.{i}.attn_norm")
        linear(f"blk.{i}.attn_qkv", 3 * WIDTH, WIDTH)
        linear(f"blk.{i}.attn_output", WIDTH, WIDTH)
        norm(f"blk.{i}.ffn_norm")
        linear(f"blk.{i}.ffn_up", 4 * WIDTH, WIDTH)
        linear(f"blk.{i}.ffn_down", WIDTH, 4 * WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_heed(options, form):
    """Tokens per second while writing and while reading."""
    answer = peers.run(options.heed, "--no-bound", "--prompt", options.prompt, "--tokens", options.tokens, "--threads",
                       options.threads, *(["--" + form] if form != "f32" else []))
    # The last token of the prompt is read together with the first that is written.
    return answer["mean_tokens_per_second"], 1e3 * (options.prompt - 1) / answer["prompt_ms"]


def run_llama(options, model):
    def rate(*flags):
        done = subprocess.run([options.llama_bench, "-m", model, "-t", str(options.threads), "-r", "1", "-fa", "on,off", "-o",
                               "json", *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        return max(run["avg_ts"] for run in json.loads(done.stdout))

    prompt, tokens = str(options.prompt), str(options.tokens)
    return rate("-p", "0", "-n", tokens, "-d", prompt), rate("-p", prompt, "-n", "0")


def main():
    parser = peers.parser_of(__doc__, "bench_generate")
    parser.add_argument("llama_bench", help="the program llama-bench")
    parser.add_argument("--prompt", type=int, default=256, help="tokens to read, at most 512 (default 256)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to write (default 64)")
    parser.add_argument("--models", type=pathlib.Path, help="folder where the GGUF files (0.9 GB) stay; made if missing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = options.models or pathlib.Path(folder)
        models.mkdir(exist_ok=True)
        files = {form: models / f"{form}.gguf" for form in FORMS}
        for form, kind in FORMS.items():
            if not files[form].exists():
                write_model(files[form], kind)
        works = [(partial(run_heed, options, form), partial(run_llama, options, files[form])) for form in FORMS]
        rates = list(peers.in_turn(options.pairs, *sum(works, ())))
    for form, *sides in zip(FORMS, rates[::2], rates[1::2]):
        line = {"weights": form, "threads": options.threads, "prompt": options.prompt, "tokens": options.tokens}
        for at, suffix in enumerate(("", "_prompt")):
            heed, llama = (statistics.median(run[at] for run in side) for side in sides)
            line["heed" + suffix], line["llama" + suffix] = round(heed, 1), round(llama, 1)
            line["prompt_ratio" if at else "ratio"] = round(heed / llama, 3)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
