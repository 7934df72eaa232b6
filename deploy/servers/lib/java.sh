# Starts a server that is one Java program and listens on $port.

# start_java ARGUMENT… runs java with these arguments, and waits until it listens. The server's files are in $dir.
start_java() {
	{
		printf '#!/usr/bin/env bash\necho $$ >"%s/pid"\nexec java -Djava.io.tmpdir="%s"' "$dir" "$dir"
		printf ' %q' -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "$@"
	} >"$dir/run"
	chmod 755 "$dir/run"
	(cd / && as_nobody "$dir/run") </dev/null &>>"$home.log" 8>&- 9>&- &
	for _ in $(seq 3000); do
		if answers 127.0.0.1 "$port"; then cp "$dir/pid" "$home.pid" && return; fi
		kill -0 $! 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
