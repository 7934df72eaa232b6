# Functions that all scripts use. This file is sourced and sets only functions.

say() { echo "servers: $*" >&2; }

# because WHY… records why a server isn't available, and fails.
because() {
	echo "$*" >"$home.reason"
	return 1
}

is_root() { [[ $(id -u) -eq 0 ]]; }

# as_nobody COMMAND… runs a command as an unprivileged user, because some servers refuse
# to run as root.
as_nobody() {
	if is_root; then runuser -u "$user" -- "$@"; else "$@"; fi
}

# unprivileged prints the name of the user for as_nobody. It is called only once, because a package that
# is installed later may create the user postgres, which would change the result.
unprivileged() { if ! is_root; then id -un; elif id postgres &>/dev/null; then echo postgres; else echo nobody; fi; }

# free_port prints a port of 127.0.0.1 on which no process listens, and reserves it, because a server needs
# some time before it listens. A reservation lasts an hour. The port is below the range of clients' ports.
# Other clones on the machine, and internal/testdb, reserve ports in the same folder.
free_port() {
	local port
	mkdir -p -m 1777 /tmp/rowrelay-ports
	find /tmp/rowrelay-ports -mindepth 1 -mmin +60 -delete 2>/dev/null || true # another clone may delete them, too
	until port=$((20000 + RANDOM % 10000)) && reserve "$port"; do :; done
	echo "$port"
}

# reserve PORT
reserve() { ! answers 127.0.0.1 "$1" && mkdir "/tmp/rowrelay-ports/$1" 2>/dev/null; }

# answers HOST PORT reports whether a process listens there.
answers() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

new_password() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# locked COMMAND… runs a command while no other run of these scripts changes servers.
locked() {
	(
		flock --timeout 900 9 || { say "another run of these scripts has held $state/lock for 15 minutes" && exit 1; }
		"$@"
	) 9>>"$state/lock"
}

# quietly COMMAND… runs a command and writes its output to the server's log. If the command leaves processes
# running, they don't hold the scripts' locks and directories.
quietly() { (cd / && "$@" >>"$home.log" 2>&1 8>&- 9>&-); }

# install_packages PACKAGE… installs Debian packages.
install_packages() {
	command -v apt-get >/dev/null || because "apt-get is missing, so $* can't be installed" || return
	is_root || because "missing; as root: apt-get install $*" || return
	mkdir -p "$(cache)"
	quietly flock "$(cache)/apt.lock" bash -c '
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q && apt-get install -q -y --no-install-recommends "$@"' - "$@" || because "apt-get install $* failed"
}

# cache prints the directory for downloads. Root's directory isn't in root's home, because the servers run as other
# users, who have to read it.
cache() {
	local fallback=${XDG_CACHE_HOME:-$HOME/.cache}/rowrelay
	if is_root; then fallback=/var/cache/rowrelay; fi
	echo "${ROWRELAY_SERVERS_CACHE:-$fallback}"
}
