#!/bin/sh
# run.sh [CSV] [FLAG OF TRAIN...]: learns the sentiment of reviews, measures it on others, and judges two new ones.
made=reviews.csv
. "$(dirname "$0")/../start.sh"

classify train --data "$data" --label-column sentiment --text-columns review --test-fraction 0.1 --out "$out" "$@"
classify evaluate --run "$out" --part test
classify predict --run "$out" --probability <<'END'
The handle is not weak at all. I would buy it again.
I expected a quiet motor, but it is loud.
END
