# What every part of the scripts uses. Sourced; sets nothing but functions.

say() { echo "servers: $*" >&2; }

# because WHY…: notes why a server can't be had, and fails.
because() {
	echo "$*" >"$home.reason"
	return 1
}

is_root() { [[ $(id -u) -eq 0 ]]; }

# as_nobody COMMAND…: runs it as a user without rights, since some servers
# refuse to run as root.
as_nobody() {
	if is_root; then runuser -u "$user" -- "$@"; else "$@"; fi
}

# unprivileged: prints that user's name. Asked for once, since a package that is
# installed meanwhile may bring one of its own.
unprivileged() { if ! is_root; then id -un; elif id postgres &>/dev/null; then echo postgres; else echo nobody; fi; }

# free_port: prints a port of 127.0.0.1 that nobody listens on, and that wasn't
# given away within the last hour: a server takes a while until it listens. It lies below
# the range from which clients get theirs. Other clones on the machine, and internal/testdb,
# give ports away by the same folder.
free_port() {
	local port
	mkdir -p -m 1777 /tmp/rowrelay-ports
	find /tmp/rowrelay-ports -mindepth 1 -mmin +60 -delete 2>/dev/null || true # others may, too
	until port=$((20000 + RANDOM % 10000)) && reserve "$port"; do :; done
	echo "$port"
}

# reserve PORT
reserve() { ! answers 127.0.0.1 "$1" && mkdir "/tmp/rowrelay-ports/$1" 2>/dev/null; }

# answers HOST PORT: whether something listens there.
answers() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

new_password() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# locked COMMAND…: runs it while no other one of these scripts changes servers.
locked() {
	(
		flock --timeout 900 9 || { say "another one of these scripts works since 15 minutes: see who holds $state/lock" && exit 1; }
		"$@"
	) 9>>"$state/lock"
}

# quietly COMMAND…: its output goes to the server's log, and what it leaves
# running holds none of our locks and none of our directories.
quietly() { (cd / && "$@" >>"$home.log" 2>&1 8>&- 9>&-); }

# install_packages PACKAGE…: has Debian's package manager install them.
install_packages() {
	command -v apt-get >/dev/null || because "apt-get isn't there to install $*" || return
	is_root || because "missing; as root: apt-get install $*" || return
	mkdir -p "$(cache)"
	quietly flock "$(cache)/apt.lock" bash -c '
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q && apt-get install -q -y --no-install-recommends "$@"' - "$@" || because "apt-get install $* failed"
}

# cache: prints the directory for what is fetched once. Others than its owner
# can read it, so not root's home.
cache() {
	local fallback=${XDG_CACHE_HOME:-$HOME/.cache}/rowrelay
	if is_root; then fallback=/var/cache/rowrelay; fi
	echo "${ROWRELAY_SERVERS_CACHE:-$fallback}"
}
