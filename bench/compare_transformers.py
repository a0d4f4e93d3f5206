#!/usr/bin/env python3
"""Reads and writes text with heed and with Hugging Face's transformers on the CPU, Llama's shape with random weights, and
compares speed.

    python3 bench/compare_transformers.py          # needs torch and transformers

`bench_generate --llama` (SmolLM2-135M's shape: 30 layers, 9 heads, 3 of them with keys) and `LlamaForCausalLM` run in turn,
each in a process of its own, with the same threads: they read a prompt, then write tokens after it, one text at a time, each
the most probable one. Prints a line of JSON for weights of f32 and bf16; figures are tokens per second:

  heed, torch                  while writing, the mean of all tokens; `ratio` is heed's over transformers'
  heed_prompt, torch_prompt    while reading the prompt, and `prompt_ratio`

Medians of the alternating runs; `load` says how many processes wanted to run before and after. On a machine that does other
things, --best takes the quickest token of all runs of a side, in place of means and medians.
"""

import json
import os
import statistics
import sys
import time
from functools import partial

import peers

WARM_UP = 3  # tokens, as in bench_generate


def write_with_torch(form, threads, prompt, tokens):
    torch = peers.set_up_torch(threads)
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=1024, rope_theta=100_000.0, tie_word_embeddings=True))
    model = model.eval().to(torch.bfloat16 if form == "bf16" else torch.float32)
    ids = torch.arange(prompt)[None]
    with torch.inference_mode():
        model(ids, use_cache=True)  # once before, for memory to be there
        start = time.perf_counter()
        out = model(ids, use_cache=True, logits_to_keep=1)
        prompt_seconds = time.perf_counter() - start
        seconds = []
        for _ in range(tokens + WARM_UP):
            start = time.perf_counter()
            out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
            seconds.append(time.perf_counter() - start)
    seconds = seconds[WARM_UP:]
    print(json.dumps({"rate": tokens / sum(seconds), "best": 1 / min(seconds), "prompt_rate": prompt / prompt_seconds}))


def run_heed(options, form):
    answer = peers.run(options.heed, "--llama", "--no-bound", "--prompt", options.prompt, "--tokens", options.tokens,
                       "--threads", options.threads, *(["--bf16"] if form == "bf16" else []))
    # The last token of the prompt is read together with the first that is written.
    return {"rate": answer["mean_tokens_per_second"], "best": answer["tokens_per_second"],
            "prompt_rate": 1e3 * (options.prompt - 1) / answer["prompt_ms"]}


def run_torch(options, form):
    return peers.run(sys.executable, __file__, "--torch", form, "--threads", options.threads, "--prompt", options.prompt,
                     "--tokens", options.tokens)


def main():
    parser = peers.parser_of(__doc__, "bench_generate")
    parser.add_argument("--prompt", type=int, default=256, help="tokens to read, at most 512 (default 256)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to write (default 64)")
    parser.add_argument("--best", action="store_true", help="the quickest token of each side")
    parser.add_argument("--torch", metavar="FORM", help="run transformers once; for this script itself")
    options = parser.parse_args()
    if options.torch:
        return write_with_torch(options.torch, options.threads, options.prompt, options.tokens)
    for form in ("f32", "bf16"):
        line = {"weights": form, "threads": options.threads, "prompt": options.prompt, "tokens": options.tokens,
                "load": [round(os.getloadavg()[0], 1)]}
        works = partial(run_heed, options, form), partial(run_torch, options, form)
        sides = list(peers.in_turn(options.pairs, *works))
        line["load"].append(round(os.getloadavg()[0], 1))
        usual = [("rate", "", statistics.median), ("prompt_rate", "_prompt", statistics.median)]
        for key, suffix, pick in [("best", "", max)] if options.best else usual:
            heed, torch = (pick(run[key] for run in side) for side in sides)
            line["heed" + suffix], line["torch" + suffix] = round(heed, 1), round(torch, 1)
            line[("prompt_" if suffix else "") + "ratio"] = round(heed / torch, 3)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
