"""The side of PyTorch in bench/race.py: trains and prints a line of JSON for each measurement of the held-out part.

    {"step": 500, "value": 1.93, "processor": 41.2, "wall": 21.0}

Processor and wall seconds are those of training alone: measuring is not counted, for nobody need do it as often.
"""

import argparse
import gzip
import json
import math
import pathlib
import re
import time
from collections import Counter

import peers


def transformer(torch, vocabulary, width, heads, hidden, layers, context, dropout, modern, causal, deviation=0.0):
    """A stack with tied embeddings, normalised before its parts. modern: rotary positions, RMSNorm, SwiGLU, as heed has them
    (norm=pre); else learned positions, LayerNorm, GELU and no biases, as in GPT-2 without biases."""
    from torch import nn
    from torch.nn import functional as F

    def norm():
        return nn.RMSNorm(width, eps=1e-5) if modern else nn.LayerNorm(width, bias=False)

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=modern)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.query_key_value, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.first, self.second = linear(width, 2 * hidden if modern else hidden), linear(hidden, width)

        def forward(self, x, turn):
            x = x + F.dropout(self.attend(self.norm1(x), turn), dropout, self.training)
            return x + F.dropout(self.second(self.activate(self.first(self.norm2(x)))), dropout, self.training)

        def attend(self, x, turn):
            batch, length, _ = x.shape
            q, k, v = self.query_key_value(x).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            if turn is not None:
                q, k = turn(q), turn(k)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.output(y.transpose(1, 2).reshape(x.shape))

        def activate(self, x):
            return F.silu(x[..., :hidden]) * x[..., hidden:] if modern else F.gelu(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.positions = None if modern else nn.Embedding(context, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = norm()
            if modern:
                angles = torch.outer(torch.arange(context), 10_000.0 ** (-torch.arange(0, width // heads, 2) / (width // heads)))
                self.register_buffer("cosines", torch.cat((angles, angles), -1).cos())
                self.register_buffer("sines", torch.cat((angles, angles), -1).sin())
            for name, weight in self.named_parameters():
                if name.endswith("bias"):
                    nn.init.zeros_(weight)
                if weight.ndim < 2:
                    continue
                if modern and "embedding" in name:
                    nn.init.normal_(weight, std=deviation or width**-0.5)
                elif modern:
                    for part in weight.split(width if "query_key_value" in name else len(weight)):
                        nn.init.xavier_uniform_(part)
                else:  # GPT-2: what ends a branch begins smaller
                    nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if name.endswith(("output.weight", "second.weight")) else 0.02)

        def turn(self, x):
            one, other = x.chunk(2, -1)
            return x * self.cosines[: x.shape[2]] + torch.cat((-other, one), -1) * self.sines[: x.shape[2]]

        def embed(self, ids):
            x = self.embedding(ids)
            return x * width**0.5 if modern else x + self.positions.weight[: ids.shape[1]]

        def logits(self, x):
            return F.linear(x, self.embedding.weight)

        def forward(self, ids):
            x = F.dropout(self.embed(ids), dropout, self.training)
            for layer in self.layers:
                x = layer(x, self.turn if modern else None)
            return self.logits(self.norm(x))

    return Model()


class Run:
    """A training: AdamW, with Muon for the layers' matrices where it is asked for; warm-up, then half a cosine or a line to
    the last rate; clipping; the average of the weights where it is asked for."""

    def __init__(self, torch, model, recipe, compiled):
        self.torch, self.model, self.recipe = torch, model, recipe
        self.forward = torch.compile(model) if compiled else model
        matrices, rest = [], []
        for name, p in model.named_parameters():
            (matrices if recipe.get("muon") and "layers" in name and p.ndim == 2 else rest).append(p)
        decay = recipe["weight_decay"]
        groups = [{"params": [p for p in rest if p.ndim >= 2], "weight_decay": decay},
                  {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
        self.optimizers = [torch.optim.AdamW(groups, lr=recipe["rate"], betas=(recipe.get("beta1", 0.9), recipe["beta2"]),
                                             eps=recipe.get("epsilon", 1e-8), fused=True)]
        if matrices:
            self.optimizers.append(torch.optim.Muon(matrices, lr=recipe["rate"], weight_decay=decay, momentum=recipe["muon"],
                                                    nesterov=True, ns_steps=recipe.get("iterations", 5),
                                                    adjust_lr_fn="match_rms_adamw"))
        self.averages = [p.detach().clone() for p in model.parameters()] if recipe.get("ema") else None

    def rate(self, step):
        first, last, warmup, steps = (self.recipe[name] for name in ("rate", "final_rate", "warmup", "steps"))
        if step <= warmup:
            return first * step / warmup
        done = (step - warmup) / max(1, steps - warmup)
        line = min(1, (1 - done) / (1 - self.recipe.get("constant", 0)))
        return last + (first - last) * (line if self.recipe.get("linear") else 0.5 * (1 + math.cos(math.pi * done)))

    def train(self, loss_of_step, measure):
        """Yields a measurement every so many steps."""
        spent = [0.0, 0.0]
        for step in range(1, self.recipe["steps"] + 1):
            start = time.process_time(), time.monotonic()
            for group in (group for one in self.optimizers for group in one.param_groups):
                group["lr"] = self.rate(step)
            loss = loss_of_step(step, self.forward)
            self.model.zero_grad(set_to_none=True)
            loss.backward()
            self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
            if self.averages:
                decay = min(self.recipe["ema"], (1 + step) / (10 + step))
                self.torch._foreach_lerp_(self.averages, [p.detach() for p in self.model.parameters()], 1 - decay)
            spent = [before + now - then for before, now, then in
                     zip(spent, (time.process_time(), time.monotonic()), start)]
            if step % self.recipe["every"] == 0 or step == self.recipe["steps"]:
                value = self.measured(measure)
                yield {"step": step, "value": value, "processor": spent[0], "wall": spent[1]}

    def measured(self, measure):
        own = [p.detach().clone() for p in self.model.parameters()]
        self.model.eval()
        with self.torch.no_grad():
            if self.averages:
                self.torch._foreach_copy_(list(self.model.parameters()), self.averages)
            value = measure(self.model)
            if self.averages:
                self.torch._foreach_copy_(list(self.model.parameters()), own)
        self.model.train()
        return value


def window_shape(recipe, step):
    """Length and number of the windows of a step. short_share: this first share of the steps has twice as many windows of
    half the length; growing: their number grows from half of the batch to one and a half."""
    parts = 2 if step <= round(recipe.get("short_share", 0) * recipe["steps"]) else 1
    number = round(recipe["batch"] * (0.5 + step / recipe["steps"])) if recipe.get("growing") else recipe["batch"]
    return recipe["context"] // parts, number * parts


def windows_of(torch, ids, context, batch, generator):
    begins = torch.randint(len(ids) - context, (batch,), generator=generator)
    rows = torch.stack([ids[begin : begin + context + 1] for begin in begins])
    return rows[:, :-1], rows[:, 1:]


def side_by_side(torch, ids, context, rows):
    """Windows that predict each token but the first once; the last, shorter one by itself."""
    count = (len(ids) - 1) // context
    inputs, targets = (ids[i : i + count * context].view(count, context) for i in (0, 1))
    yield from zip(inputs.split(rows), targets.split(rows))
    if rest := (len(ids) - 1) % context:
        yield ids[-rest - 1 : -1][None], ids[-rest:][None]


def characters(torch, recipe, compiled, change=lambda model: None):
    """Nats per character of the last tenth of a text, by a model that is changed first."""
    from torch.nn import functional as F

    text = pathlib.Path(recipe["data"]).read_text(encoding="utf-8")
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([number[character] for character in text])
    cut = int(len(ids) * 0.9)
    train, valid = ids[:cut], ids[cut:]
    context = recipe["context"]
    model = transformer(torch, len(number), recipe["width"], recipe["heads"], recipe["hidden"], recipe["layers"], context,
                        recipe["dropout"], recipe["modern"], causal=True, deviation=recipe.get("deviation", 0.0))
    change(model)
    generator = torch.Generator().manual_seed(recipe["seed"])

    def loss(step, forward):
        inputs, targets = windows_of(torch, train, *window_shape(recipe, step), generator)
        return F.cross_entropy(forward(inputs).flatten(0, 1), targets.flatten())

    def measure(network):
        nats = sum(F.cross_entropy(network(inputs).flatten(0, 1), targets.flatten(), reduction="sum").item()
                   for inputs, targets in side_by_side(torch, valid, context, 4096 // context))
        return nats / (len(valid) - 1)

    return Run(torch, model, recipe, compiled).train(loss, measure)


def masked(torch, recipe, compiled):
    """Nats per hidden token: 15 % of the tokens, of which 80 % become a mark, 10 % another token (BERT's rule)."""
    import tokenizers
    from torch.nn import functional as F

    tokenizer = tokenizers.Tokenizer.from_file(recipe["tokenizer"])
    mask, vocabulary = tokenizer.token_to_id("<mask>"), tokenizer.get_vocab_size()
    parts = [torch.tensor(tokenizer.encode(pathlib.Path(recipe[name]).read_text(encoding="utf-8")).ids)
             for name in ("data", "valid")]
    context = recipe["context"]
    model = transformer(torch, vocabulary, recipe["width"], recipe["heads"], recipe["hidden"], recipe["layers"], context,
                        recipe["dropout"], recipe["modern"], causal=False, deviation=recipe.get("deviation", 0.0))
    generator = torch.Generator().manual_seed(recipe["seed"])

    def guessed(rows, forward, draws, reduction):
        """Of the rows of a batch each 15 % are hidden, so that the loss is over the same number of tokens each time."""
        count = max(1, round(0.15 * rows.shape[1]))
        places = torch.rand(rows.shape, generator=draws).argsort(1)[:, :count]
        chance = torch.rand(places.shape, generator=draws)
        others = torch.randint(vocabulary, places.shape, generator=draws)
        targets = rows.gather(1, places)
        hidden = torch.where(chance < 0.8, mask, torch.where(chance < 0.9, others, targets))
        logits = forward(rows.scatter(1, places, hidden))
        logits = logits.gather(1, places[..., None].expand(-1, -1, logits.shape[2]))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction), targets.numel()

    def loss(step, forward):
        rows, _ = windows_of(torch, parts[0], *window_shape(recipe, step), generator)
        return guessed(rows, forward, generator, "mean")[0]

    def measure(network):
        draws = torch.Generator().manual_seed(0)  # the same places each time
        count = len(parts[1]) // context
        found = [guessed(rows, network, draws, "sum")
                 for rows in parts[1][: count * context].view(count, context).split(4096 // context)]
        return sum(nats.item() for nats, _ in found) / sum(number for _, number in found)

    return Run(torch, model, recipe, compiled).train(loss, measure)


def words_of_bleu(line):
    """The tokens of mteval-v13a, NIST's script."""
    line = f" {line} "
    for pattern, by in ((r"([{-~[-` -&(-+:-@/])", r" \1 "), (r"([^0-9])([.,])", r"\1 \2 "), (r"([.,])([^0-9])", r" \1 \2"),
                        (r"([0-9])(-)", r"\1 \2 ")):
        line = re.sub(pattern, by, line)
    return line.split()


def bleu(answers, expected):
    """Papineni et al. 2002, with one reference and without smoothing, in per cent."""
    right, all_of, lengths = [0] * 4, [0] * 4, [0, 0]
    for answer, target in zip(map(words_of_bleu, answers), map(words_of_bleu, expected)):
        lengths = [lengths[0] + len(answer), lengths[1] + len(target)]
        for n in range(1, 5):
            mine, theirs = (Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (answer, target))
            right[n - 1] += (mine & theirs).total()
            all_of[n - 1] += mine.total()
    if not all(right):
        return 0.0
    precision = sum(math.log(one / of) for one, of in zip(right, all_of)) / 4
    return 100 * math.exp(precision + min(0.0, 1 - lengths[1] / lengths[0]))


def translation(torch, recipe, compiled):
    """BLEU of greedy translations of the validation part, by nn.Transformer with sinusoidal positions."""
    import tokenizers
    from torch import nn
    from torch.nn import functional as F

    tokenizer = tokenizers.Tokenizer.from_file(recipe["tokenizer"])
    pad, begin, end = (tokenizer.token_to_id(mark) for mark in ("<pad>", "<s>", "</s>"))
    width, longest = recipe["width"], 128

    def lines(name):
        path = recipe[name]
        return (gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")).read().splitlines()

    def tokens(name):
        return [one.ids[: recipe["max_tokens"] - 1] + [end] for one in tokenizer.encode_batch(lines(name), add_special_tokens=False)]

    def padded(rows):
        most = max(map(len, rows))
        return torch.tensor([row + [pad] * (most - len(row)) for row in rows])

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(tokenizer.get_vocab_size(), width)
            self.stacks = nn.Transformer(width, recipe["heads"], recipe["layers"], recipe["layers"], recipe["hidden"],
                                         recipe["dropout"], batch_first=True, norm_first=True)
            for part in self.stacks.modules():  # dropout only of embeddings and of sub-layers, as in heed
                if isinstance(part, nn.MultiheadAttention):
                    part.dropout = 0.0
                elif isinstance(part, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
                    part.dropout.p = 0.0
            angles = torch.arange(longest)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
            self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).view(-1, width))
            nn.init.normal_(self.embedding.weight, std=width**-0.5)

        def embed(self, ids):
            return F.dropout(self.embedding(ids) * width**0.5 + self.positions[: ids.shape[1]], recipe["dropout"], self.training)

        def encode(self, source):
            return self.stacks.encoder(self.embed(source), src_key_padding_mask=source == pad)

        def decode(self, memory, source, before):
            mask = nn.Transformer.generate_square_subsequent_mask(before.shape[1])
            hidden = self.stacks.decoder(self.embed(before), memory, tgt_mask=mask, tgt_is_causal=True,
                                         memory_key_padding_mask=source == pad)
            return F.linear(hidden, self.embedding.weight)

        def forward(self, source, before):
            return self.decode(self.encode(source), source, before)

    pairs = list(zip(tokens("source"), tokens("target")))
    sources, expected = tokens("valid_source"), lines("valid_target")
    generator = torch.Generator().manual_seed(recipe["seed"])
    queue = []

    def batches():
        """Pairs of like lengths, of at most batch_tokens tokens with their padding, in an order drawn anew."""
        order = sorted(torch.randperm(len(pairs), generator=generator).tolist(), key=lambda i: max(map(len, pairs[i])))
        made, batch = [], []
        for i in order:
            if batch and (len(batch) + 1) * max(map(len, pairs[i])) > recipe["batch_tokens"]:
                made.append(batch)
                batch = []
            batch.append(i)
        made.append(batch)
        return [made[i] for i in torch.randperm(len(made), generator=generator).tolist()]

    def loss(step, forward):
        if not queue:
            queue.extend(batches())
        rows = [pairs[i] for i in queue.pop()]
        source, target = padded([one for one, _ in rows]), padded([other for _, other in rows])
        before = torch.cat((torch.full((len(rows), 1), begin), target[:, :-1]), 1)
        return F.cross_entropy(forward(source, before).flatten(0, 1), target.flatten(), ignore_index=pad,
                               label_smoothing=recipe["label_smoothing"])

    def measure(network):
        answers = [""] * len(sources)
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        for first in range(0, len(order), 64):
            rows = order[first : first + 64]
            source = padded([sources[i] for i in rows])
            memory, written = network.encode(source), torch.full((len(rows), 1), begin)
            done = torch.zeros(len(rows), dtype=torch.bool)
            while not done.all() and written.shape[1] < min(longest, 2 * source.shape[1] + 10):
                best = network.decode(memory, source, written)[:, -1].argmax(-1)
                written = torch.cat((written, torch.where(done, pad, best)[:, None]), 1)
                done |= best == end
            for row, ids in zip(rows, written[:, 1:].tolist()):
                answers[row] = tokenizer.decode(ids[: ids.index(end)] if end in ids else ids)
        return bleu(answers, expected)

    return Run(torch, Translator(), recipe, compiled).train(loss, measure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("race", choices=("characters", "masked", "translation"))
    parser.add_argument("recipe", type=json.loads)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch = peers.set_up_torch(options.threads)
    torch.manual_seed(options.recipe["seed"])
    for measurement in globals()[options.race](torch, options.recipe, options.compile):
        print(json.dumps(measurement), flush=True)


if __name__ == "__main__":
    main()
