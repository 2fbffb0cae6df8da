#!/usr/bin/env bash
#SBATCH --job-name=agon
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@60
# One node with NVIDIA GPUs. Arguments are passed on; the same command resumes after a time-out.
#   sbatch launch/slurm.sh --config=configs/adv.py --workdir=runs/adv
set -euo pipefail
python3 -m venv .venv
source .venv/bin/activate
pip install -q -e '.[cuda]'
JAX_PLATFORMS=cuda srun python -m agon_jax.main "$@"
