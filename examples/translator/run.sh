#!/bin/sh
# run.sh [TSV] [FLAG OF TRAIN...]: learns to translate English to German, measures it, and translates three sentences.
made=sentences.tsv
. "$(dirname "$0")/../start.sh"

translate train --data "$data" --format tsv --source-column 1 --target-column 2 --valid-fraction 0.05 \
    --config "$here/settings.json" --out "$out" "$@"
translate evaluate --run "$out" --part valid
translate predict --run "$out" <<'END'
the old man buys a red bicycle .
in the garden the old man wants to buy a red bicycle .
a small child knows that the old man wants to buy a red bicycle .
END
