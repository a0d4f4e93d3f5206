#!/bin/sh
# run.sh [TEXT] [FLAG OF TRAIN...]: learns to write poems, measures it, writes 25, and counts the rhymes.
made=poems.txt
. "$(dirname "$0")/../start.sh"

language_model train --data "$data" --config "$here/settings.json" --out "$out" "$@"
language_model evaluate --run "$out"
language_model generate --run "$out" --tokens 1000 --temperature 0.8 |
    sed 's/^ //; s/ $//' >"$out-poems.txt" # all words are written with a space between them
head -n 9 "$out-poems.txt"
python3 -B "$here/check.py" "$data" <"$out-poems.txt"
