#!/usr/bin/env bash
# sbatch containers/cluster/slurm.sh: one rank on each of two nodes. ppengine must lie at the same path on all of them, or in an image.
#SBATCH --job-name=ppengine
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
set -euo pipefail
program=${PPENGINE:-/opt/ppengine/bin/ppengine}

# One secret for the run, handed on in the environment and on no command line (docs/threats.md).
PPENGINE_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export PPENGINE_SECRET
run=(train --model tiny --data synthetic --pp "$SLURM_NTASKS" --steps 20)
if [[ -n ${PPENGINE_IMAGE:-} ]]; then  # a SIF or sqsh file made of the image: apptainer build ppengine.sif docker-archive:...
  srun apptainer exec "$PPENGINE_IMAGE" ppengine "${run[@]}"
else
  srun "$program" "${run[@]}"
fi
