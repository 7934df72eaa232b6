# run: the servers for as long as one command needs them.

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

# in_group COMMAND…: runs it in a process group of its own, so that a signal
# reaches all that it started, and it can be waited for until it has ended.
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

# finish: the last of several runs stops what runs have brought up. What was up
# before, or was asked for by name since, stays.
finish() {
	local status=$?
	if [[ -n ${group:-} ]]; then stop_group; fi
	if flock --exclusive --nonblock 8; then locked down_temporary || true; fi
	exit "$status"
}

# stop_group: asks it to end, and after ten seconds, or at a second signal to
# us, makes it: a shell that is just starting a program may lose the signal.
# Then ends what it has left behind.
stop_group() {
	local _
	trap 'kill -s KILL -- "-$group" 2>/dev/null' INT TERM
	kill -s INT -- "-$group" 2>/dev/null || true
	for _ in $(seq 100); do kill -0 "$group" 2>/dev/null && sleep 0.1 || break; done
	kill -s KILL -- "-$group" 2>/dev/null || true
	wait "$group" || true
	trap '' INT TERM
}

# say_missing NAME…: which of these servers could not be had.
say_missing() {
	local name
	for name in $(servers_of "$@"); do
		[[ ! -s $state/$name.missing ]] || say "NOT tested against $name: $(<"$state/$name.missing")"
	done
}
