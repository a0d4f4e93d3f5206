"""check.py TEXT: how many of the poems on standard input rhyme, and how many of their lines are not in TEXT."""
import sys

from data import RHYMES


def rhyme(one, other):
    return one != other and any(one in words and other in words for words in RHYMES)


known = set(open(sys.argv[1], encoding="utf-8").read().split("\n"))
poems = [poem.split("\n") for poem in sys.stdin.read().strip().split("\n\n")]
lines = [line for poem in poems for line in poem if line]
ends = [[line.split()[-1] for line in poem] for poem in poems if len(poem) == 4]
print(f"poems of four lines: {len(ends)} of {len(poems)}")
print(f"rhymes: {sum(rhyme(a, b) + rhyme(c, d) for a, b, c, d in ends)} of {2 * len(ends)}")
print(f"new lines: {sum(line not in known for line in lines)} of {len(lines)}")
