#!/usr/bin/env python3
"""Translates a file with heed and with CTranslate2, the same weights in both, and compares speed and output.

Writes CTranslate2's model folder from a run of `translate` (with --convert FOLDER it stops there), then lets both answer
the file in turn, each in a process of its own: the same threads, beam and batch size, and no length penalty, for which
the two libraries have different formulas. Prints a line of JSON for float32, and one for int8 (`int8_weights` in heed):

  with_start_up   CTranslate2's time over heed's, of whole processes, from nothing to the last line
  decoding        the same without what one line takes: the process, the model, the vocabulary
  cpu_*           the same two ratios of processor seconds (user and system), which other work on the machine moves less
  same_output     share of lines where both wrote the same text

Needs ctranslate2, tokenizers, safetensors and numpy. Models: dot-product attention, one vocabulary for both sides.
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial

import peers


def sinusoids(count, width):
    """Vaswani et al. 2017, section 3.5, with sines and cosines in turn."""
    import numpy as np

    angles = np.arange(count)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(count, width).astype(np.float32)


def weights_of(run):
    """The file that `translate predict` reads: of the best evaluation where there is one."""
    best = os.path.join(run, "best.safetensors")
    return best if os.path.exists(best) else os.path.join(run, "model.safetensors")


def convert(run, folder):
    """Writes CTranslate2's model folder from a run."""
    import numpy as np
    from ctranslate2.specs import common_spec, transformer_spec
    from safetensors.numpy import load_file

    with open(os.path.join(run, "config.json")) as file:
        model = json.load(file)["model"]
    for stack in ("encoder", "decoder", "cross"):
        chosen = model[f"{stack}_attention"]
        if chosen != "dot_product":
            sys.exit(f"model.{stack}_attention is {chosen}; CTranslate2 has dot_product only")
    if model["activation"] not in ("relu", "gelu", "gelu_tanh", "silu") or model["share_layers"] != "none":
        sys.exit("the activation or the sharing of layers is not one that CTranslate2 has")
    if model.get("norm_kind", "layer") != "layer":
        sys.exit(f"model.norm_kind is {model['norm_kind']}; known here: layer")
    if model.get("pointer"):
        sys.exit("CTranslate2 has no pointer")
    tensors = load_file(weights_of(run))
    activation = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}[model["activation"]]
    spec = transformer_spec.TransformerSpec.from_config(
        (model["encoder_layers"], model["decoder_layers"]), model["heads"], pre_norm=model["norm"] == "pre",
        activation=common_spec.Activation[activation])

    def norm(to, name):
        to.gamma, to.beta = tensors[name + ".weight"], tensors[name + ".bias"]

    def linear(to, *names):
        """One map, or several that read the same vectors, one below the other."""
        to.weight = np.concatenate([tensors[name + ".weight"] for name in names])
        if names[0] + ".bias" in tensors:
            to.bias = np.concatenate([tensors[name + ".bias"] for name in names])

    def self_attention(to, name, norm_name):
        linear(to.linear[0], *(f"{name}.{part}" for part in ("query", "key", "value")))
        linear(to.linear[1], name + ".output")
        norm(to.layer_norm, norm_name)

    def feed_forward(to, name):
        linear(to.linear_0, name + "feed_forward.input")
        linear(to.linear_1, name + "feed_forward.output")
        norm(to.layer_norm, name + "feed_forward_norm")

    embedding = tensors.get("embedding.weight")
    length = 1024  # of what is read and of what is written
    for stack, side, embeddings in ((spec.encoder, "source", spec.encoder.embeddings[0]),
                                    (spec.decoder, "target", spec.decoder.embeddings)):
        embeddings.weight = tensors[f"{side}_embedding.weight"] if embedding is None else embedding
        stack.scale_embeddings = model["scale_embeddings"]
        learned = tensors.get(f"{side}.positions.weight")
        if model["positions"] not in ("sinusoidal", "learned"):
            sys.exit(f"model.positions is {model['positions']}; known here: sinusoidal, learned")
        stack.position_encodings.encodings = sinusoids(length, model["width"]) if learned is None else learned
        if model["norm"] == "pre":
            norm(stack.layer_norm, ("encoder" if side == "source" else "decoder") + ".norm")
    spec.decoder.projection.weight = tensors.get("output.weight", spec.decoder.embeddings.weight)
    if "output.bias" in tensors:
        spec.decoder.projection.bias = tensors["output.bias"]
    for i, layer in enumerate(spec.encoder.layer):
        name = f"encoder.layers.{i}."
        self_attention(layer.self_attention, name + "attention", name + "attention_norm")
        feed_forward(layer.ffn, name)
    for i, layer in enumerate(spec.decoder.layer):
        name = f"decoder.layers.{i}."
        self_attention(layer.self_attention, name + "self_attention", name + "self_attention_norm")
        cross = name + "cross_attention"
        linear(layer.attention.linear[0], cross + ".query")
        linear(layer.attention.linear[1], cross + ".key", cross + ".value")
        linear(layer.attention.linear[2], cross + ".output")
        norm(layer.attention.layer_norm, cross + "_norm")
        feed_forward(layer.ffn, name)

    with open(os.path.join(run, "tokenizer.json")) as file:
        vocabulary = json.load(file)["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.get)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_bos = False
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model["epsilon"]
    spec.validate()
    os.mkdir(folder)
    spec.save(folder)


def run_ctranslate2(options):
    """One process of CTranslate2: lines from standard input, translations to standard output."""
    import ctranslate2
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(options.run, "tokenizer.json"))
    lines = sys.stdin.read().splitlines()
    translator = ctranslate2.Translator(
        options.run_ctranslate2, compute_type=options.types[0], inter_threads=options.inter_threads,
        intra_threads=max(1, options.threads // options.inter_threads))
    sources = [encoding.tokens for encoding in tokenizer.encode_batch(lines)]
    longest = max(len(source) for source in sources)
    results = translator.translate_batch(
        sources, beam_size=options.beam, length_penalty=0, max_batch_size=options.batch_size, min_decoding_length=0,
        max_input_length=0, max_decoding_length=int(1.5 * (longest + 1)) + 10)
    for result in results:
        ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
        print(tokenizer.decode(ids).replace("\n", " "))


def timed(command, lines, environment):
    """Wall and processor seconds of a process that answers the lines, and its answers."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=True, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout.splitlines()


def report(options, kind, rows):
    """Prints the line of JSON for one type of weights."""
    pairs = list(zip(*(rows[side, kind][-1][4] for side in ("heed", "ctranslate2")), strict=True))
    if options.differences:
        for line, (a, b) in enumerate(pairs):
            if a != b:
                print(f"{line}\n  heed         {a}\n  CTranslate2  {b}", file=sys.stderr)

    def median(side, of):
        return statistics.median(of(row) for row in rows[side, kind])

    def ratio(of):
        return round(median("ctranslate2", of) / median("heed", of), 3)

    print(json.dumps({
        "type": kind,
        "lines": len(pairs),
        "threads": options.threads,
        "heed_seconds": round(median("heed", lambda row: row[0]), 3),
        "ctranslate2_seconds": round(median("ctranslate2", lambda row: row[0]), 3),
        "heed_start_up": round(median("heed", lambda row: row[2]), 3),
        "ctranslate2_start_up": round(median("ctranslate2", lambda row: row[2]), 3),
        "with_start_up": ratio(lambda row: row[0]),
        "decoding": ratio(lambda row: row[0] - row[2]),
        "cpu_with_start_up": ratio(lambda row: row[1]),
        "cpu_decoding": ratio(lambda row: row[1] - row[3]),
        "same_output": round(sum(a == b for a, b in pairs) / len(pairs), 4),
    }))


def main():
    parser = peers.parser_of(__doc__, "translate")
    parser.add_argument("--run", required=True, help="folder of a run of `translate train`")
    parser.add_argument("--source", help="the text to translate, one sentence a line; plain or .gz")
    parser.add_argument("--convert", metavar="FOLDER", help="only write CTranslate2's model to this new folder")
    parser.add_argument("--inter-threads", type=int, default=1,
                        help="of CTranslate2: batches at a time, among which the threads are divided (default 1)")
    parser.add_argument("--types", nargs="+", choices=("float32", "int8"), default=("float32", "int8"))
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--differences", action="store_true", help="show the lines that differ on standard error")
    parser.add_argument("--run-ctranslate2", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_ctranslate2:
        return run_ctranslate2(options)
    if options.convert:
        return convert(options.run, options.convert)
    if not options.source:
        parser.error("--source FILE or --convert FOLDER is required")

    opener = gzip.open if options.source.endswith(".gz") else open
    with opener(options.source, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    # Threads of OpenMP that wait must not take the processor from those of the other side.
    environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        convert(options.run, model)
        shared = ["--threads", str(options.threads), "--beam", str(options.beam), "--batch-size", str(options.batch_size)]
        sides = {}
        for kind in options.types:
            sides["heed", kind] = [options.heed, "predict", "--run", options.run, *shared, "--length-penalty", "0",
                                   *(("--set", "int8_weights=true") if kind == "int8" else ())]
            sides["ctranslate2", kind] = [
                sys.executable, os.path.abspath(__file__), "--run", options.run, "--source", options.source, "--types", kind,
                "--run-ctranslate2", model, "--inter-threads", str(options.inter_threads), *shared]

        def both(command):
            """Wall and processor seconds of all lines and of one, and the answers."""
            one = timed(command, lines[:1], environment)
            wall, cpu, answers = timed(command, lines, environment)
            return wall, cpu, *one[:2], answers

        rows = dict(zip(sides, peers.in_turn(options.pairs, *[partial(both, command) for command in sides.values()])))
    for kind in options.types:
        report(options, kind, rows)


if __name__ == "__main__":
    main()
