"""data.py IMAGES: writes 2,000 digits of 28 x 28 pixels in MNIST's format, made by rule: a font of 5 x 7 dots that is
stretched, slanted, moved and covered with noise. Their labels go to the file with "labels" and "idx1" in its name."""
import random
import struct
import sys

FONT = """
.###. ..#.. .###. ####. ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# ....# ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. .###. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... ....# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### ####. ...#. .###. .###. .#... .###. .##..
"""
ROWS = [line.split() for line in FONT.split("\n") if line]
draw = random.Random(1)


def dot(digit, x, y):
    return 1.0 if 0 <= x < 5 and 0 <= y < 7 and ROWS[y][digit][x] == "#" else 0.0


def image(digit):
    width, height = draw.uniform(13, 19), draw.uniform(17, 23)
    slant, left, top = draw.uniform(-0.2, 0.2), draw.uniform(3, 25 - width), draw.uniform(2, 26 - height)
    pixels = bytearray()
    for row in range(28):
        for column in range(28):
            y = (row - top) / height * 7 - 0.5
            x = (column - left + slant * (row - 14)) / width * 5 - 0.5
            i, j = int(x // 1), int(y // 1)
            a, b = x - i, y - j  # between four dots
            ink = ((1 - a) * (1 - b) * dot(digit, i, j) + a * (1 - b) * dot(digit, i + 1, j)
                   + (1 - a) * b * dot(digit, i, j + 1) + a * b * dot(digit, i + 1, j + 1))
            pixels.append(min(255, max(0, int(255 * ink + draw.gauss(0, 40)))))
    return pixels


labels = bytes(draw.randrange(10) for _ in range(2000))
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack(">4i", 2051, len(labels), 28, 28))
    for label in labels:
        file.write(image(label))
with open(sys.argv[1].replace("images", "labels").replace("idx3", "idx1"), "wb") as file:
    file.write(struct.pack(">2i", 2049, len(labels)) + labels)
