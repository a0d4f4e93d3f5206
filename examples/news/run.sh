#!/bin/sh
# run.sh [FOLDER] [FLAG OF TRAIN...]: learns which news readers click on, measures it on later clicks, and orders six.
made=news
. "$(dirname "$0")/../start.sh"

recommend train --data "$data/behaviors.tsv" --news "$data/news.tsv" \
    --set tokenizer.kind=words --set news.represented_by=title --set training.steps=600 --out "$out" "$@"
recommend evaluate --run "$out" --part test
tail -n 1 "$data/behaviors.tsv" | cut -f 4,5 | sed 's/-[01]//g' | recommend predict --run "$out"
