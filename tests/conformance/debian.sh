#!/bin/bash
# debian.sh PROGRAMS [SUITE...]: makes the package of the programs in PROGRAMS and installs it in Debian 12 and 13 (bookworm, trixie),
# each in a container of its own in which the systemd of that release is process 1: units, exposure, start, answers, whose a connection
# is, reload, programs that take over, the daily backup, what the hardening leaves to commands (the sandbox's tests, test suites in node, Go and Java, an MCP server), upgrade,
# downgrade, a database of a newer version, other systems beside it, removal and purge. Needs root and debootstrap; Debian's mirror is
# needed once, after that target/debian has the systems. Prints what holds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
fail() {
    echo "debian.sh: $*" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || fail "needs root: sudo make debian"
command -v debootstrap >/dev/null || fail "no debootstrap on PATH: apt-get install debootstrap"
programs=$(cd "${1:?PROGRAMS}" && pwd)
shift
cache=$tree/target/debian
mirror=${KEN_DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages=systemd,libpam-systemd,dbus,dbus-user-session,procps,ca-certificates,curl,git,iproute2,sqlite3,nodejs,golang-go,default-jdk-headless,python3,man-db
unified=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$unified" ] || fail "no control groups of version 2 are mounted"
work=$(mktemp -d /var/tmp/ken-debian.XXXXXX)
held=0 broken=0

# The packages, of two versions. What tests were built with is left out of the programs.
mkdir -p "$cache" "$work/programs"
for program in "$programs"/ken "$programs"/ken-* "$programs"/kend; do
    case $program in *.d) ;; *) [ ! -x "$program" ] || strip -o "$work/programs/${program##*/}" "$program" ;; esac
done
names=$(cd "$work/programs" && echo *)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$tree/Cargo.toml" | head -n 1)
for made in "$version" "$version+next"; do
    KEN_DEB_COMPRESSION=none make -s -C "$tree" deb VERSION="$made" BUILT="$work/programs" PROGRAMS="$names" OUT="$work/packages"
done
architecture=$(dpkg --print-architecture)

# base SUITE: makes the system that the container starts from, once.
base() {
    [ ! -e "$cache/$1.done" ] || return 0
    command -v debootstrap >/dev/null || fail "no debootstrap on PATH: apt-get install debootstrap"
    rm -rf "${cache:?}/$1"
    echo "$1: debootstrap, some minutes, once"
    debootstrap --variant=minbase --include="$packages" "$1" "$cache/$1" "$mirror" >"$cache/$1.log" 2>&1 ||
        { tail -n 5 "$cache/$1.log" >&2; fail "debootstrap $1 failed; its log is $cache/$1.log"; }
    touch "$cache/$1.done"
}

# boot: starts systemd as process 1 of a copy of the system, with its own network. It is pivoted to, so that /proc is as visible as on a
# machine: what a sandbox may mount depends on that.
boot() {
    group=$unified/ken-debian-$$-$1
    mkdir -p "$group" "$work/$1"
    cp -a "$cache/$1" "$work/$1/root"
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec unshare --mount --pid --ipc --uts --net --cgroup --fork "$here/boot.sh" "$work/$1/root" "$tree"
    ) >"$work/$1.console" 2>&1 &
    launcher=$!
    local until=$((SECONDS + 60))
    until init=$(pgrep -P "$launcher") && inside true 2>/dev/null && inside test -S /run/systemd/private; do
        [ $SECONDS -lt $until ] || { cat "$work/$1.console" >&2; fail "$1: systemd does not start"; }
        sleep 0.2
    done
    inside timeout 60 systemctl is-system-running --wait >/dev/null || true
}

inside() {
    nsenter -t "$init" -a env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
}

end() {
    [ -z "${launcher:-}" ] || { kill -KILL "$init" 2>/dev/null || true; wait "$launcher" 2>/dev/null || true; launcher=; }
    find "$unified" -depth -path "*/ken-debian-$$-*" -type d -exec rmdir {} + 2>/dev/null || true
}
trap 'end; rm -rf "$work"' EXIT

# holds WHAT COMMAND...: the command must succeed; what it printed is shown if it does not.
holds() {
    local what=$1
    shift
    if "$@" >"$work/printed" 2>&1; then
        held=$((held + 1))
        echo "  ok      $what"
    else
        broken=$((broken + 1))
        echo "  BROKEN  $what"
        tail -n 15 "$work/printed" | cut -c 1-300 | sed 's/^/          /'
    fi
}

# says TEXT COMMAND...: the command prints this text, whatever its status.
says() {
    local text=$1 printed
    shift
    printed=$("$@" 2>&1) || true
    case $printed in *"$text"*) return 0 ;; esac
    printf '%s\n(expected: %s)\n' "$printed" "$text"
    return 1
}

as() {
    local user=$1
    shift
    inside runuser -u "$user" -- "$@"
}

active() { [ "$(inside systemctl is-active ken)" = "$1" ] || { inside journalctl -u ken -n 15 --no-pager; return 1; }; }
fails() { ! "$@"; }
install_package() { inside dpkg -i "/packages/ken_$1_$architecture.deb"; }
status() { inside curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:3940/api/chat/sessions; }
status_as() { [ "$(as "$1" curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:3940/api/chat/sessions)" = "$2" ]; }
chat_as() { as "$1" env XDG_RUNTIME_DIR=/run/user/none ken --url http://127.0.0.1:3940 --secret-file /etc/ken/client.secret chat "$2"; }
teach() { inside ken knowledge add "$1" "$2"; }

# probe NAME COMMAND...: runs a command under the installed unit: its user, folders and hardening, with another program.
# Without the run directory, which systemd would remove at the end although the service uses it.
probe() {
    local name=$1
    shift
    inside sh -c 'sed -e "/^Exec/d" -e "/^Restart/d" -e "/^RuntimeDirectory/d" -e "s/^Type=.*/Type=oneshot/" /usr/lib/systemd/system/ken.service >"/run/systemd/system/$0.service" &&
        sed -i "s#^KillMode=.*#&\nExecStart=$1\nStandardOutput=file:/var/tmp/$0.out\nStandardError=inherit\nWorkingDirectory=/var/lib/ken\nEnvironment=PATH=/usr/local/bin:/usr/bin:/bin HOME=/var/lib/ken#" "/run/systemd/system/$0.service" &&
        systemctl daemon-reload && { timeout 300 systemctl start "$0"; status=$?; cat "/var/tmp/$0.out"; exit $status; }' "$name" "$*"
}

suite_of() { # a project with tests that listen on loopback, start a process and compile while they run
    case $1 in
    node)
        cat >"$2/loopback.test.js" <<'END'
const test = require('node:test'), assert = require('node:assert'), http = require('node:http')
const { execFileSync } = require('node:child_process')
test('a server on loopback and a process', async () => {
  const server = http.createServer((_, res) => res.end('hi')).listen(0, '127.0.0.1')
  await new Promise(done => server.on('listening', done))
  const body = await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text()
  server.close()
  assert.equal(body, 'hi')
  assert.equal(execFileSync('echo', ['x']).toString(), 'x\n')
  let sum = 0
  for (let i = 0; i < 1e7; i++) sum += i % 7
  assert.ok(sum > 0)
})
END
        ;;
    go)
        printf 'module loopback\n\ngo 1.18\n' >"$2/go.mod"
        cat >"$2/loopback_test.go" <<'END'
package loopback

import ("io"; "net/http"; "net/http/httptest"; "os/exec"; "testing")

func TestLoopback(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hi") }))
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil { t.Fatal(err) }
	body, _ := io.ReadAll(response.Body)
	if string(body) != "hi" { t.Fatal(string(body)) }
	if out, err := exec.Command("echo", "x").Output(); err != nil || string(out) != "x\n" { t.Fatal(err) }
}
END
        ;;
    java)
        cat >"$2/Loopback.java" <<'END'
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.net.http.*;

public class Loopback {
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> { exchange.sendResponseHeaders(200, 2); exchange.getResponseBody().write("hi".getBytes()); exchange.close(); });
        server.start();
        URI uri = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/");
        String body = HttpClient.newHttpClient().send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString()).body();
        server.stop(0);
        if (!body.equals("hi") || new ProcessBuilder("true").start().waitFor() != 0) throw new AssertionError(body);
    }
}
END
        ;;
    esac
}

command_of() {
    case $1 in
    node) echo '"argv":["node","--test"]' ;;
    go) echo '"shell":"CGO_ENABLED=0 go test ./..."' ;; # there is no C compiler
    java) echo '"shell":"javac Loopback.java && java Loopback"' ;;
    esac
}

# tests_run LANGUAGE: as the coding worker runs them, by ken-coder in the sandbox.
tests_run() {
    local folder=$work/$suite/root/var/lib/ken/workspace/projects/$1
    mkdir -p "$folder"
    suite_of "$1" "$folder"
    echo "{\"cwd\":\"projects/$1\",$(command_of "$1"),\"timeoutSeconds\":280}" >"$folder/call.json"
    inside chown -R ken:ken /var/lib/ken/workspace
    probe "probe-$1" /usr/bin/ken-coder run -f "/var/lib/ken/workspace/projects/$1/call.json" && says '"status": 0,' cat "$work/$suite/root/var/tmp/probe-$1.out"
}

main_process() { inside systemctl show -P MainPID -P ActiveEnterTimestampMonotonic -P NRestarts ken; }

# The programs are replaced by new files and take over: for systemd it is the same process of the same start, and all parts are new ones.
takes_over() {
    local before parts
    before=$(main_process)
    parts=$(inside pgrep -P "${before%%$'\n'*}" | sort)
    inside sh -c 'for program in /usr/bin/kend /usr/bin/ken-*; do cp -p "$program" "$program.new" && mv "$program.new" "$program"; done'
    says "has taken over, pid ${before%%$'\n'*}" as ken env XDG_CONFIG_HOME=/etc KEN_STATE_DIR=/var/lib/ken KEN_RUN_DIR=/run/ken ken upgrade || return 1
    [ "$(main_process)" = "$before" ] && active active || { main_process; return 1; }
    parts=$(comm -12 <(echo "$parts") <(inside pgrep -P "${before%%$'\n'*}" | sort))
    [ -z "$parts" ] || { echo "these parts are the same processes: $parts"; return 1; }
}

kend_in_leaf() {
    local group
    group=$(inside sh -c 'cat /proc/$(systemctl show -P MainPID ken)/cgroup | sed -n "s/^0:://p"')
    [ "$group" = /system.slice/ken.service/main ] || { echo "$group"; return 1; }
}

exposure() {
    local printed
    printed=$(inside systemd-analyze security --offline=yes --no-pager --threshold=40 /usr/lib/systemd/system/ken.service 2>&1) || { echo "$printed" | tail -n 3; return 1; }
    echo "$printed" | sed -n 's/.*Overall exposure level for [^:]*: /          exposure: /p' >>"$work/notes"
}

clean_units() {
    local printed
    printed=$(inside sh -c 'systemd-analyze verify /usr/lib/systemd/system/ken*; XDG_RUNTIME_DIR=/run systemd-analyze verify --user /usr/lib/systemd/user/ken*' 2>&1)
    [ -z "$printed" ] || { echo "$printed"; return 1; }
}

mcp_server_is_seen() {
    install -D -m 644 "$here/../doubles/mcp.py" "$work/$suite/root/opt/mcp.py"
    inside install -d -o ken -g ken /srv/mcp
    echo '{"mcpServers":{"double":{"command":"python3","args":["/opt/mcp.py","/srv/mcp"],"ken":{"touch":{"read":["/opt"],"write":["/srv/mcp"]}}}}}' >"$work/$suite/root/etc/ken/mcp.json"
    inside chown root:ken /etc/ken/mcp.json
    inside chmod 640 /etc/ken/mcp.json
    inside systemctl restart ken
    local until=$((SECONDS + 30))
    until says echo as ken env XDG_CONFIG_HOME=/etc KEN_STATE_DIR=/var/lib/ken KEN_RUN_DIR=/run/ken ken tools servers >/dev/null; do
        [ $SECONDS -lt $until ] || { as ken env XDG_CONFIG_HOME=/etc KEN_STATE_DIR=/var/lib/ken KEN_RUN_DIR=/run/ken ken tools servers; return 1; }
        sleep 0.5
    done
}

newest_backup() { inside sh -c "ls -t $1/*.tar | head -n 1"; }

# verified FOLDER AT_LEAST: there are that many backups, and the newest is one that `ken restore` would take.
verified() {
    [ "$(inside sh -c "ls $1/*.tar | wc -l")" -ge "$2" ] && inside ken backup --verify "$(newest_backup "$1")"
}

backup_service() {
    inside systemctl start ken-backup.service || { inside journalctl -u ken-backup -n 15 --no-pager; return 1; }
    verified /var/lib/ken-backups 1
}

# The timer as it is installed, but due at once.
backup_timer() {
    inside mkdir -p /run/systemd/system/ken-backup.timer.d
    printf '[Timer]\nOnCalendar=\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=100ms\n' >"$work/soon.conf"
    inside sh -c 'cat >/run/systemd/system/ken-backup.timer.d/soon.conf' <"$work/soon.conf"
    inside systemctl daemon-reload
    inside systemctl enable --now ken-backup.timer || return 1
    local until=$((SECONDS + 30))
    until verified /var/lib/ken-backups 2 >/dev/null; do
        [ $SECONDS -lt $until ] || { inside systemctl status ken-backup.timer ken-backup.service --no-pager; return 1; }
        sleep 0.5
    done
    inside rm -r /run/systemd/system/ken-backup.timer.d
    inside systemctl daemon-reload
    inside systemctl restart ken-backup.timer
    says ken-backup.service inside systemctl list-timers --no-pager
}

# What the service has written brings back what was lost, for root, who gives it to the user of the service.
backup_brings_back() {
    inside systemctl stop ken
    inside mv /var/lib/ken /var/lib/ken.lost
    inside install -d -m 700 -o ken -g ken /var/lib/ken
    inside env XDG_CONFIG_HOME=/etc KEN_STATE_DIR=/var/lib/ken KEN_RUN_DIR=/run/ken ken restore --replace "$(newest_backup /var/lib/ken-backups)" || return 1
    inside systemctl start ken || return 1
    says Tuesdays chat_as anna "When is the site deployed?" && inside rm -r /var/lib/ken.lost
}

user_unit() {
    inside systemctl stop ken
    inside loginctl enable-linger anna
    local uid until=$((SECONDS + 30))
    uid=$(inside id -u anna)
    own() { as anna env "XDG_RUNTIME_DIR=/run/user/$uid" HOME=/home/anna "$@"; }
    until inside test -S "/run/user/$uid/systemd/private"; do
        [ $SECONDS -lt $until ] || { inside systemctl status "user@$uid" --no-pager; return 1; }
        sleep 0.2
    done
    own systemctl --user start ken || { inside journalctl -n 20 --no-pager "_UID=$uid"; return 1; }
    own ken chat --no-start hello || return 1
    own systemctl --user start ken-backup.service || { inside journalctl -n 20 --no-pager "_UID=$uid"; return 1; }
    own sh -c 'ken backup --verify "$(ls "$HOME"/.local/state/ken-backups/*.tar "$HOME"/.config/ken-backups/*.tar 2>/dev/null | head -n 1)"' || return 1
    local group
    group=$(own sh -c 'cat /proc/$(systemctl --user show -P MainPID ken)/cgroup' | sed -n 's/^0:://p')
    own systemctl --user stop ken
    case $group in */ken.service/main) ;; *) echo "$group"; return 1 ;; esac
}

all() {
    suite=$1
    base "$suite"
    boot "$suite"
    mkdir -p "$work/$suite/root/packages"
    cp "$work"/packages/*.deb "$work/$suite/root/packages"
    inside useradd -m anna
    inside useradd -m boris
    echo "$suite: $(inside systemctl --version | head -n 1), $(inside ldd --version 2>/dev/null | head -n 1)"

    holds "the package installs" install_package "$version"
    holds "it makes the user ken and /etc/ken, for root and the group" says "750 root ken" inside stat -c '%a %U %G' /etc/ken
    holds "it does not start a stopped service" active inactive
    holds "the units have no error for this systemd" clean_units
    holds "exposure is at most 4.0" exposure
    cat "$work/notes" 2>/dev/null && rm "$work/notes"
    holds "systemctl enable --now" inside systemctl enable --now ken
    holds "the unit started twice" inside systemctl start ken
    holds "kend is in a group of its own" kend_in_leaf
    holds "root needs the secret (401)" says 401 status
    holds "the user ken needs none" status_as ken 200
    holds "another user needs the secret (401)" status_as boris 401
    holds "who may not read it is told both ways in" says "systemctl --user enable --now ken" as boris ken --url http://127.0.0.1:3940 sessions
    inside usermod -a -G ken anna
    holds "a member of the group ken gets an answer" chat_as anna "What can you do?"
    holds "knowledge is taken from root's ken" teach "Deploy window" "The site is deployed on Tuesdays at 14:00 UTC."
    holds "a second kend on these folders is refused by name" says "kend already runs there" as ken env XDG_CONFIG_HOME=/etc KEN_STATE_DIR=/var/lib/ken KEN_RUN_DIR=/run/ken kend
    holds "a second system on the port is refused with the port" says "another program listens on 127.0.0.1:" as boris ken up --home /home/boris/ken
    echo 'prot = 1' >>"$work/$suite/root/etc/ken/ken.toml"
    holds "a reload of a bad file fails" fails inside systemctl reload ken
    holds "and the service goes on" active active
    sed -i '$d' "$work/$suite/root/etc/ken/ken.toml"
    holds "a reload of a good file" inside systemctl reload ken
    holds "ken upgrade: new programs take over in the same main process" takes_over
    holds "a reload after that" inside systemctl reload ken

    holds "the service makes a backup, which is sound" backup_service
    holds "the timer makes another one" backup_timer
    holds "it brings back what was lost" backup_brings_back

    holds "a sandbox has all walls under the unit" says '"processes":true,"mounts":true,"loopback":true,"ownProc":true' probe probe-walls /usr/bin/ken-sandbox --walls
    escape=$(ls -t "$tree"/target/debug/deps/sandbox-* 2>/dev/null | grep -v '\.d$' | head -n 1 || true)
    if [ -n "$escape" ]; then
        holds "nothing gets out of the sandbox under the unit" probe probe-escape "$escape" escape::
    else
        echo "  left out: the sandbox's tests are not built (cargo test --workspace --test sandbox --no-run)"
    fi
    for language in node go java; do holds "tests in $language run" tests_run $language; done
    holds "an MCP server starts in its sandbox" mcp_server_is_seen

    holds "an upgrade over a running service" install_package "$version+next"
    holds "the service runs again" active active
    holds "what it was taught is still there" says "Tuesdays" chat_as anna "When is the site deployed?"
    holds "a downgrade is said" says "this goes back from" install_package "$version"
    holds "and the service runs again" active active
    inside systemctl stop ken
    inside python3 -c 'import sqlite3; d = sqlite3.connect("/var/lib/ken/store/ken.db"); v = d.execute("PRAGMA user_version").fetchone()[0]; d.execute("PRAGMA user_version = %d" % (v + 1)); d.commit(); print(v)' >"$work/was"
    inside systemctl start ken || true
    holds "a database of a newer version is refused with a sentence" says "this ken-store knows versions up to" inside sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do grep -h "knows versions" /var/lib/ken/log/store.log && break; sleep 0.5; done'
    inside systemctl stop ken
    inside python3 -c 'import sqlite3, sys; d = sqlite3.connect("/var/lib/ken/store/ken.db"); d.execute("PRAGMA user_version = %s" % sys.argv[1]); d.commit()' "$(cat "$work/was")"
    inside chown -R ken:ken /var/lib/ken
    holds "and works again when it is put back" inside systemctl start ken
    holds "a user's own unit" user_unit
    inside systemctl reset-failed ken
    holds "the service after that" inside systemctl start ken
    holds "an upgrade of a stopped service" inside sh -c "systemctl stop ken && dpkg -i /packages/ken_$version+next_$architecture.deb"
    holds "does not start it" active inactive
    inside mkdir -p /usr/local/lib/systemd/system
    inside cp /usr/lib/systemd/system/ken.service /usr/local/lib/systemd/system
    holds "a unit that hides that of the package is named" says "/usr/local/lib/systemd/system/ken.service, not of this package" install_package "$version"
    inside rm -r /usr/local/lib/systemd

    holds "removal says what stays" says "/var/lib/ken stay" inside dpkg -r ken
    holds "and it stays" inside test -f /var/lib/ken/store/ken.db
    holds "purge says what goes" says "removing /var/lib/ken" inside dpkg -P ken
    holds "and it is gone" inside sh -c '! test -e /var/lib/ken && ! test -e /etc/ken && ! find /etc/systemd -name "ken*" | grep .'
    holds "but not the backups" inside sh -c 'ls /var/lib/ken-backups/*.tar'
    end
}

[ $# -gt 0 ] || set -- bookworm trixie
for suite in "$@"; do all "$suite"; done
echo "debian: $held checks hold, $broken do not"
[ "$broken" = 0 ]
