# The commands up, down and status. They read each server's file in a subshell. The file sets
# $variable and the functions get, start and url.

all_servers() { for file in "$here"/*.sh; do basename "$file" .sh; done; }

# servers_of NAME… prints the given names, or all names if none is given.
servers_of() { if [[ $# -gt 0 ]]; then echo "$*"; else all_servers; fi; }

# unnamed prints the servers that a command without names starts: all except the expensive ones, whose
# files have by_name=only. Those start only if they are named.
unnamed() { for name in $(all_servers); do grep -q '^by_name=only' "$here/$name.sh" || echo "$name"; done; }

# with_server NAME COMMAND…
with_server() (
	name=$1 home=$state/$1 && shift
	source "$here/$name.sh"
	"$@"
)

up() {
	local name failed=0 jobs=()
	for name in $(if [[ $# -gt 0 ]]; then echo "$*"; else unnamed; fi); do
		with_server "$name" up_one &
		jobs+=($!)
	done
	for job in "${jobs[@]}"; do wait "$job" || failed=1; done
	write_env
	[[ $failed -eq 0 || ${REQUIRE_SERVERS:-} != 1 ]]
}

# up_one starts a server, unless the environment names one or it already runs.
up_one() {
	if is_given; then
		say "$name: using the server in $variable"
	elif is_up; then
		[[ -n ${temporary:-} ]] || rm -f "$home.temporary"
	else
		discard
		bring_up || { failed && [[ -n ${optional:-} ]] && return || return 1; }
		say "$name: up on port $port"
	fi
}

# is_given reports whether the environment names a server that answers and that these scripts didn't start.
is_given() {
	local given=${!variable:-} address='([A-Za-z0-9.-]+):([0-9]+)([/)?,]|$)'
	[[ ! -s $home.url || $given != "$(<"$home.url")" ]] &&
		[[ $given =~ $address ]] && answers "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
}

is_up() {
	[[ -s $home.port ]] && { [[ -e $home.compose ]] || process_runs; } && answers 127.0.0.1 "$(<"$home.port")"
}

bring_up() {
	password=$(new_password) port=$(free_port)
	[[ -z ${temporary:-} ]] || touch "$home.temporary"
	if get; then
		make_home && start || { [[ -s $home.reason ]] || because "it doesn't start"; } || return
	elif has_docker; then
		start_by_compose || return
	else
		return 1
	fi
	echo "$port" >"$home.port"
	url >"$home.url"
}

failed() {
	local reason
	reason=$(<"$home.reason")
	if [[ -s $home.log ]]; then tail -n 5 "$home.log" | sed "s/^/servers: $name: /" >&2; fi
	discard
	echo "$reason" >"$home.missing"
	say "$name: not available: $reason"
}

# discard stops the server if it runs, and removes all its files.
discard() {
	if [[ -e $home.compose ]]; then stop_by_compose || true; fi
	stop_process
	rm -rf -- "$home" "$home".{home,pid,port,url,log,compose,temporary,reason,missing}
}

down() {
	local name
	for name in $(servers_of "$@"); do with_server "$name" down_one; done
	write_env
}

down_one() {
	local was_up=
	if is_up; then was_up=yes; fi
	discard
	[[ -z $was_up ]] || say "$name: down"
}

down_temporary() {
	local name
	for name in $(all_servers); do [[ ! -e $state/$name.temporary ]] || with_server "$name" down_one; done
	write_env
}

status() {
	local name
	for name in $(servers_of "$@"); do with_server "$name" status_one; done
}

status_one() {
	if is_up; then echo "$name: up on port $(<"$home.port")"; elif is_given; then echo "$name: using the server in $variable"
	elif [[ -s $home.missing ]]; then echo "$name: not available: $(<"$home.missing")"; else echo "$name: down"; fi
}

# words_of_one prints the command that starts the server, for a test that runs one itself.
words_of_one() {
	if ! get; then say "$name: not available: $(<"$home.reason")" && return 1; fi
	words
}

# write_env writes the file that sets the tests' environment variables.
write_env() {
	local name file
	file=$(mktemp "$state/env.XXXXXX")
	for name in $(all_servers); do
		if [[ -s $state/$name.url ]]; then with_server "$name" env_line >>"$file"; fi
	done
	mv "$file" "$state/env"
}

env_line() { is_given || printf "export %s='%s'\n" "$variable" "$(<"$home.url")"; }
