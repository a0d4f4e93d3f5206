"""A model and a training loop of one's own: groups of parameters, a schedule, dropout, a file to go on from."""

import numpy as np

import heed
import heed.nn.functional as F
from heed import nn

STEPS = 60


class Net(nn.Module):
    def __init__(self, words: int, width: int, classes: int) -> None:
        self.table = nn.Embedding(words, width, deviation=0.1)
        self.attention = nn.MultiheadAttention(width, 4, "dot_product", positions="rotary")
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Dropout(0.1), nn.Linear(width, classes))

    def forward(self, ids: heed.Tensor) -> heed.Tensor:
        x = self.table(ids)  # [batch, length, width]
        return self.out((x + self.attention(x)).mean(1))


random = np.random.default_rng(1)
ids = heed.Tensor(random.integers(0, 50, (64, 12)))
labels = (ids.numpy() < 10).sum(1) > 2

net = Net(50, 32, 2)
groups = [{"params": net.table, "learning_rate": 3e-3}, {"params": [net.attention, net.out]}]
adam = heed.Optimizer("adamw", groups, 1e-2, weight_decay=0.01, clip_norm=1.0)
schedule = heed.Schedule("cosine", 1e-2, steps=STEPS, warmup_steps=6)
for step in range(1, STEPS + 1):
    with heed.Context(seed=1, step=step):  # training, with the dropout of this step
        loss = F.cross_entropy(net(ids), labels).mean()
    loss.backward()
    adam.step(schedule(step))
    adam.zero_grad()
    if step % 20 == 0:
        print(f"step {step}, loss {loss.item():.3f}")

with heed.no_grad():
    found = net(ids).argmax(1).numpy()
print(f"accuracy {np.mean(found == labels):.2f}")
net.save("net.safetensors", adam)  # net.load("net.safetensors", adam) goes on to the same bits
