"""An attention mechanism of one's own: a function, checked against what it declares, in a layer and in a task."""

import heed


def cosine(call: heed.AttentionCall) -> heed.Tensor:
    """softmax(scale cos(q, k)) v, with a learned scale."""
    q, k = (t / ((t * t).sum(-1, keepdims=True) + 1e-6) ** 0.5 for t in (call.query, call.key))  # [B, H, N, dh]
    weights = heed.masked_softmax(q @ k.transpose() * call.parameters["scale"], call.allowed)
    call.show("weights", weights)  # attention maps
    return weights @ call.value


heed.register_attention("cosine", cosine, causal=True, cross=True, parameters={"scale": 8.0})
heed.check_attention("cosine")  # causality, padding, gradients, ...: an error names what does not hold

layer = heed.attention("cosine", 64, heads=4, causal=True)
print(layer(heed.normal((2, 10, 64), seed=1)).shape)

texts, labels = ["a fine film", "dull and endless"] * 50, ["good", "bad"] * 50
run = heed.train("classify", texts, labels, attention="cosine", steps=30, seed=1)
print(run.predict(["a fine end"])[0])
