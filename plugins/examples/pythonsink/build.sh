#!/bin/sh
# Creates a virtual environment with the plug-in's program, bin/pythonsink, in the
# folder that the argument names (by default .venv next to this script).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/.venv}
proto=$here/../../pluginv1 # or wherever rowrelay_sink_v1.proto was copied to

test -x "$venv/bin/python" || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
modules=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
"$venv/bin/python" -m grpc_tools.protoc --proto_path="$proto" --python_out="$modules" --grpc_python_out="$modules" rowrelay_sink_v1.proto
{ echo "#!$venv/bin/python" && cat "$here/pythonsink.py"; } >"$venv/bin/pythonsink"
chmod +x "$venv/bin/pythonsink"
echo "$venv/bin/pythonsink"
