# The command run: starts servers, runs a command, and stops the servers.

run() {
	local names=() status=0
	while [[ $# -gt 0 && $1 != -- ]]; do names+=("$1") && shift; done
	[[ $# -gt 1 ]] || usage
	shift
	exec 8>>"$state/users"
	flock --shared 8
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	temporary=yes locked up ${names[@]+"${names[@]}"}
	source "$state/env"
	in_group "$@" || status=$?
	say_missing ${names[@]+"${names[@]}"}
	exit "$status"
}

# in_group COMMAND… runs a command in a separate process group, so that a signal reaches all processes
# that it started, and waits until it has ended.
in_group() {
	local status=0
	set -m
	"$@" </dev/null 8>&- &
	group=$!
	set +m
	wait "$group" || status=$?
	group=
	return "$status"
}

# finish stops all servers that the command run has started, unless another run is still active. Servers that were
# running before, or that the command up has started since, keep running.
finish() {
	local status=$?
	if [[ -n ${group:-} ]]; then stop_group; fi
	if flock --exclusive --nonblock 8; then locked down_temporary || true; fi
	exit "$status"
}

# stop_group interrupts the group, and kills it after ten seconds or at a second signal, because a shell
# that is just starting a program may lose the signal.
stop_group() {
	local _
	trap 'kill -s KILL -- "-$group" 2>/dev/null' INT TERM
	kill -s INT -- "-$group" 2>/dev/null || true
	for _ in $(seq 100); do kill -0 "$group" 2>/dev/null && sleep 0.1 || break; done
	kill -s KILL -- "-$group" 2>/dev/null || true
	wait "$group" || true
	trap '' INT TERM
}

# say_missing NAME… reports which of these servers weren't available.
say_missing() {
	local name
	for name in $(servers_of "$@"); do
		[[ ! -s $state/$name.missing ]] || say "NOT tested against $name: $(<"$state/$name.missing")"
	done
}
