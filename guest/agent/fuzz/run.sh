#!/bin/sh
# Fuzzes the agent's parser and decoders: run.sh [FRAMES] [SEED]. Ten million frames by default.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cc -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
  -o "$build/fuzz" "$here/fuzz.c" "$here/../frame.c" "$here/../message.c"
"$build/fuzz" "${1:-10000000}" "${2:-1}"
