#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image of an autograder.
set -e
source=${AUTOGRADER:-/autograder}/source
lab=${LAB:-/opt/lab}

apt-get update
apt-get install -y python3 python3-venv bubblewrap
id student || useradd --system student
python3 -m venv "$lab/venv"
# torch without CUDA: Gradescope has no GPUs, and the image stays small.
"$lab/venv/bin/pip" install --no-cache-dir -r "$source/requirements.txt" \
    --extra-index-url https://download.pytorch.org/whl/cpu

# Where bubblewrap may not work, which is so in most containers, programs run as the
# user `student`: what that user needs is here, and the hidden cases are not.
cp -r "$source/lab/ddp_lab" "$source/lab/whichrank" \
    "$source/lab/classroom/engine/runner.py" "$lab"
chmod -R go+rX "$lab"
chmod 700 "$source"
