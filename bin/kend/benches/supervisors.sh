#!/bin/sh
# kend under the same probe as other supervisors: restart over the spawn floor, memory, idle wake-ups, cold start, a held
# socket under kills. Figures are ratios to a floor of the same run. Arguments: more supervisors to measure beside it.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
suite=$root/../shared/bench/supervisors
[ -d "$suite" ] || { echo "supervisors.sh: skipped, there is no $suite" >&2; exit 0; }
kend=$root/target/release/kend
[ -x "$kend" ] || { echo "supervisors.sh: no $kend: cargo build --release -p kend" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$suite"/*.py "$suite"/svc.c "$work"
cc -O2 -static -o "$work/svc" "$work/svc.c"

# Called as DIR N SVC SOCK MODE: N parts s0, s1, ...
cat > "$work/parts" <<'PARTS'
#!/bin/sh
ready=start; [ "$5" = notify ] && ready=notify
{ echo '[kend]'; echo 'builtin_parts = false'
  i=0; while [ "$i" -lt "$2" ]; do
    printf '[part.s%d]\ncommand = ["%s", "%s:s%d@%s"]\nready = "%s"\nsockets = {}\n' "$i" "$3" "$5" "$i" "$4" "$ready"
    i=$((i + 1))
  done; } > "$1/ken.toml"
PARTS
# Called as DIR SVC SOCK PATH: one part with a held socket.
cat > "$work/socket" <<'SOCKET'
#!/bin/sh
printf '[kend]\nbuiltin_parts = false\n[part.s0]\ncommand = ["%s", "listen3:s0@%s"]\nready = "start"\nsockets = { wire = { unix = "%s" } }\n' "$2" "$3" "$4" > "$1/ken.toml"
SOCKET
chmod +x "$work/parts" "$work/socket"

export OURS_GEN="$work/parts" OURS_SOCK_GEN="$work/socket" OURS_START="$kend --home {dir}" WORK="$work/w"
mkdir -p "$WORK" "$work/results"
cd "$work"
python3 bench.py "$@" ours
python3 sockbench.py ours
