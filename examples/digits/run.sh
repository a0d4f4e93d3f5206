#!/bin/sh
# run.sh [IMAGES] [FLAG OF TRAIN...]: learns to read digits, and measures it on others.
made=digits-images-idx3-ubyte
. "$(dirname "$0")/../start.sh"

classify train --data "$data" --config "$here/../configs/mnist_10k.json" --set training.steps=500 --out "$out" "$@"
classify evaluate --run "$out" --part test --errors "$out-errors"
