"""data.py TEXT: writes 4,000 poems of four lines, of which the first two rhyme and the last two, made by rule."""
import random
import sys

RHYMES = [words.split() for words in (
    "night light sight flight", "sea tree bee key", "day bay clay way", "rain lane train plane",
    "moon tune spoon lagoon",
    "snow crow bow glow", "heart art chart part", "air chair bear stair", "gold cold fold mould", "rose nose hose toes",
    "stone bone throne phone", "hill mill till quill", "star car bar jar", "fire choir wire lyre",
    "song gong throng wrong",
    "field shield yield weald")]
PLAIN = "river garden window candle shadow meadow mirror feather lantern winter harbour kitchen pigeon pocket".split()
KINDS = "silver quiet golden broken sleepy hidden tender crooked gentle yellow lonely dusty frozen tiny".split()
LINES = ["the {kind} {plain} sees the {end}", "a {plain} waits beside the {end}", "I left my {plain} by the {end}",
         "and no one knows the {kind} {end}", "the {plain} dreams about the {end}", "we carry home a {kind} {end}",
         "my {plain} is a {kind} {end}", "and all the {plain} loves the {end}", "the {kind} wind forgets the {end}",
         "you never asked me for the {end}"]


def poem(draw):
    (a, b), (c, d) = (draw.sample(words, 2) for words in draw.sample(RHYMES, 2))
    return [draw.choice(LINES).format(kind=draw.choice(KINDS), plain=draw.choice(PLAIN), end=end)
            for end in (a, b, c, d)]


if __name__ == "__main__":
    draw = random.Random(1)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for _ in range(4000):
            print("\n".join(poem(draw)), end="\n\n", file=file)
