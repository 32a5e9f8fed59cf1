#!/usr/bin/env bash
# Installs what the tests need and the machine lacks: RabbitMQ, Redis, PostgreSQL, Chromium, a C compiler for the race detector, ps, and
# nc, Celery with its modules for Redis and msgpack, and the distribution's old NATS server, for the tests with old servers. The new one is a Go module, which the tests build.
# With SWARMIJI_THOROUGH it installs promtool too, which checks the alert rules of docs/scaling.md.
# It changes nothing when all is there, and it leaves no server running: the tests start private ones.
#
# On Debian and its relatives, as root, it installs; elsewhere it says what to install and fails.
set -euo pipefail

go_minor=26 # of Go 1, as in go.mod

say() { printf 'setup: %s\n' "$*"; }

have_go() {
	local v
	v=$(go env GOVERSION 2>/dev/null) || return 1
	[[ $v =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= go_minor))
}

# A compiler without the C library's headers is of no use to the race detector, so that both are tried at once.
have_cc() {
	command -v gcc >/dev/null || return 1
	printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | gcc -x c -fsyntax-only - 2>/dev/null
}

# Debian keeps the server's own script, which the tests start, outside of PATH.
have_rabbitmq() {
	[[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]] || command -v rabbitmq-server >/dev/null
}

have_redis() { command -v redis-server >/dev/null; }

# Debian keeps the server's programs outside of PATH, a directory for each version.
have_postgres() {
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null
}

have_pgbouncer() { [[ -x /usr/sbin/pgbouncer ]] || command -v pgbouncer >/dev/null; }

have_old_nats() { command -v nats-server >/dev/null; }

have_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

have_ps() { command -v ps >/dev/null; }

# There are several programs of this name, and only some can tell the other end that their input has ended.
have_nc() { [[ $(nc -h 2>&1) == *-N* ]]; }

# promtool is needed by make thorough only.
have_promtool() { [[ -z ${SWARMIJI_THOROUGH:-} ]] || command -v promtool >/dev/null; }

# The interpreter of the distribution, which has the distribution's modules. Another one on PATH may lack them.
have_python() { [[ -x /usr/bin/python3 ]] && /usr/bin/python3 -c "import $1" 2>/dev/null; }

missing() {
	have_cc || echo gcc libc6-dev
	have_rabbitmq || echo rabbitmq-server
	have_redis || echo redis-server
	have_postgres || echo postgresql
	have_pgbouncer || echo pgbouncer
	have_old_nats || echo nats-server
	have_browser || echo chromium
	have_ps || echo procps
	have_nc || echo netcat-openbsd
	have_python celery || echo python3-celery
	have_python redis || echo python3-redis
	have_python msgpack || echo python3-msgpack
	have_promtool || echo prometheus
}

# Package scripts start the servers they install. policy-rc.d is Debian's way to say no; one that is there already stays,
# because it belongs to the machine.
policy=/usr/sbin/policy-rc.d
forbid_start() {
	[[ -e $policy ]] && return
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

# Without this the service would come up at the next boot. It is done only for a server that this script installed: one
# that was there before is somebody's. Debian's services are named like their packages. The database cluster that Debian makes
# when it installs PostgreSQL stays where it is, and is never started.
forbid_boot() {
	local service=$1
	if [[ -d /run/systemd/system ]] && command -v systemctl >/dev/null; then
		systemctl disable --now "$service.service" >/dev/null 2>&1 || say "could not disable the $service service"
	elif command -v update-rc.d >/dev/null; then
		update-rc.d "$service" disable >/dev/null 2>&1 || say "could not disable the $service service"
	fi
}

apt_install() {
	apt-get install -y -q --no-install-recommends "$@"
}

install_missing() {
	local wanted service
	read -r -a wanted <<<"$(missing | tr '\n' ' ')"
	((${#wanted[@]} == 0)) && return

	if ! command -v apt-get >/dev/null; then
		say "please install with your system's package manager: RabbitMQ 3.10 or newer, Redis 7 or newer, PostgreSQL 15 or newer, PgBouncer 1.18 or newer, Chromium, gcc with the C library's headers, ps, nc with -N, Celery 5 with its modules for Redis and msgpack in /usr/bin/python3"
		say "(missing here, by their Debian names: ${wanted[*]})"
		exit 1
	fi
	if ((EUID != 0)); then
		say "please run as root: apt-get install ${wanted[*]}"
		exit 1
	fi

	say "installing ${wanted[*]}"
	export DEBIAN_FRONTEND=noninteractive
	forbid_start
	# Lists that are absent or out of date show themselves by a failure; fetching them always would cost every run seconds.
	if ! apt_install "${wanted[@]}" </dev/null; then
		say "fetching the package lists"
		apt-get update -q </dev/null
		apt_install "${wanted[@]}" </dev/null
	fi
	for service in rabbitmq-server redis-server postgresql pgbouncer nats-server prometheus; do
		if [[ " ${wanted[*]} " == *" $service "* ]]; then
			forbid_boot "$service"
		fi
	done

	read -r -a wanted <<<"$(missing | tr '\n' ' ')"
	if ((${#wanted[@]} > 0)); then
		say "still missing after the installation: ${wanted[*]}"
		exit 1
	fi
	say "done"
}

main() {
	if ! have_go; then
		say "Go 1.$go_minor or newer is needed; see https://go.dev/doc/install"
		exit 1
	fi
	install_missing
}

main "$@"
