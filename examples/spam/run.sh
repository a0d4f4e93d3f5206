#!/bin/sh
# run.sh [TSV] [FLAG OF TRAIN...]: learns to tell spam from other messages, measures it, and looks at two new ones.
made=messages.tsv
. "$(dirname "$0")/../start.sh"

classify train --data "$data" --format tsv --no-header --label-column 1 --text-columns 2 --test-fraction 0.2 \
    --set training.class_weights=balanced --out "$out" "$@"
classify evaluate --run "$out" --part test --errors "$out-errors"
classify predict --run "$out" --probability <<'END'
Good news: the parcel did not arrive, so I got my money back. See you at 8.
Good news: your parcel is waiting. Confirm your address and your card on post-track.example now.
END
