#!/usr/bin/env bash
# Idle share and memory from 8 to 1024 ranks, on paper: m = 4p microbatches, F = I = W = 1, free communication.
# The last column counts activations of one p-th of the model, so that schedules with one and two stages a rank compare.
set -euo pipefail
binary=${1:-$(dirname "$0")/../build/bin/ppengine}
printf '%-24s %6s %7s %13s %10s %10s %22s\n' schedule ranks stages microbatches makespan idle 'activations of rank 0'
for schedule in 1f1b interleaved1f1b interleavedzerobubble zbvzerobubble dualpipev vhalf vmin; do
  for ranks in 8 16 32 64 128 256 512 1024; do
    case $schedule in 1f1b | interleavedzerobubble) per_rank=1 ;; *) per_rank=2 ;; esac
    "$binary" plan --schedule "$schedule" --ranks "$ranks" --stages $((per_rank * ranks)) --microbatches $((4 * ranks)) \
      --summary | awk -v s="$schedule" -v p="$ranks" -v v="$per_rank" '
        /^makespan/ {makespan = $2 / v} /^idle share/ {idle = $3} /^live/ {live = $3}
        END {printf "%-24s %6d %7d %13d %10.1f %9.3f%% %22.1f\n", s, p, p * v, 4 * p, makespan, idle, live / v}'
  done
done
