# A server as a process of this machine. Its home is a directory below .servers/, or elsewhere if the
# server's user can't access .servers/. Small files in .servers/ describe the server: NAME.home, NAME.pid, NAME.url…

# make_home creates an empty home that belongs to the server's user, and sets $dir to it.
make_home() {
	dir=$home
	mkdir -p "$dir"
	if fits_in_memory; then
		rmdir "$dir"
		dir=$(mktemp -d /dev/shm/rowrelay-server.XXXXXX)
	elif ! as_nobody test -x "$dir"; then
		rmdir "$dir"
		dir=$(mktemp -d "${TMPDIR:-/tmp}/rowrelay-server.XXXXXX")
	fi
	echo "$dir" >"$home.home"
	if is_root; then chown "$user" "$dir"; fi
}

# fits_in_memory reports whether the home should be in memory and enough memory is free. Creating and
# dropping databases, with hundreds of files each, takes several times as long on a disk. In a server's
# file, $in_memory is the memory that the server needs, in MiB.
fits_in_memory() {
	[[ -n ${in_memory:-} && ${ROWRELAY_SERVERS_IN_MEMORY:-off} == on && -d /dev/shm ]] &&
		[[ $(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo) -ge $in_memory ]] &&
		[[ $(df --output=avail --block-size=1M /dev/shm | tail -n 1) -ge $in_memory ]]
}

# process_runs reports whether the server's process runs. It checks that the command line contains the
# server's home, because another process may have the same id by now.
process_runs() {
	[[ -s $home.pid && -s $home.home ]] || return
	tr '\0' ' ' 2>/dev/null <"/proc/$(<"$home.pid")/cmdline" | grep -qF -- "$(<"$home.home")"
}

stop_process() {
	if process_runs; then
		kill -s "${stop_signal:-TERM}" "$(<"$home.pid")" || true
		for _ in $(seq 100); do process_runs || break && sleep 0.1; done
		if process_runs; then kill -KILL "$(<"$home.pid")" || true; fi
	fi
	if [[ -s $home.home ]]; then rm -rf -- "$(<"$home.home")"; fi
}
