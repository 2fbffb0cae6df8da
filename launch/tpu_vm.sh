#!/usr/bin/env bash
# On a Cloud TPU VM with Python >= 3.11: install and train. Arguments are passed on.
#   bash launch/tpu_vm.sh --config=configs/adv.py --workdir=runs/adv
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv .venv
source .venv/bin/activate
pip install -q -e '.[tpu]'
JAX_PLATFORMS=tpu exec python -m agon_jax.main "$@"
