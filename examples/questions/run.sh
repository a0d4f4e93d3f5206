#!/bin/sh
# run.sh [CSV] [FLAG OF TRAIN...]: learns which questions ask the same, measures it, and judges two new pairs.
made=questions.csv
. "$(dirname "$0")/../start.sh"

match train --data "$data" --set data.first_column=question1 --set data.second_column=question2 \
    --label-column is_duplicate --test-fraction 0.1 --set training.steps=600 --out "$out" "$@"
match evaluate --run "$out" --part test
printf '%s\t%s\n' \
    "How much is the train from Oslo to Rome?" "What do I pay to get to Rome from Oslo?" \
    "How much is the train from Oslo to Rome?" "How many hours is it from Oslo to Rome?" |
    match predict --run "$out" --probability
