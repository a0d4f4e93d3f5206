# What every run.sh begins with. It names the file that data.py makes, $made, and gets the programs in PATH, the run's
# folder $out (or $OUT), and $data: what the first argument names, else what data.py makes. Flags stay in "$@".
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PATH=${HEED_PROGRAMS:-$here/../../build/bin}:$PATH
out=${OUT:-runs/$(basename "$here")}
case ${1:-} in
  "" | -*)
    data=$(dirname "$out")/data/$made
    mkdir -p "$(dirname "$data")"
    python3 -B "$here/data.py" "$data"
    ;;
  *)
    data=$1
    shift
    ;;
esac
