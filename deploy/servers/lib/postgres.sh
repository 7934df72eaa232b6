# Starts any PostgreSQL. A server's file sets $bin, the folder of its programs, and optionally
# $more_options, and $collation, initdb's options for the default collation.

stop_signal=QUIT # immediately, because the data are deleted
in_memory=4096   # the tests need a gigabyte: some write a million rows

url() { echo "postgres://rowrelay:$password@127.0.0.1:$port/postgres?sslmode=disable"; }

words() { echo "$bin/postgres"; }

start() {
	init_postgres && start_postgres || { postgres_log && return 1; }
	head -n 1 "$dir/data/postmaster.pid" >"$home.pid"
}

# The collation isn't binary, so that tests notice code that relies on the order of bytes.
init_postgres() {
	(umask 077 && echo "$password" >"$dir/password" && if is_root; then chown "$user" "$dir/password"; fi)
	quietly as_nobody "$bin/initdb" --pgdata="$dir/data" --username=rowrelay --pwfile="$dir/password" --auth=scram-sha-256 \
		--encoding=UTF8 --locale=C.UTF-8 ${collation---locale-provider=icu --icu-locale=en} --no-sync
}

start_postgres() {
	local options="-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories="
	options+=" -c max_connections=200 -c max_prepared_transactions=10 -c logging_collector=off"
	options+=" -c fsync=${ROWRELAY_SERVERS_FSYNC:-off} -c full_page_writes=${ROWRELAY_SERVERS_FSYNC:-off} ${more_options:-}"
	quietly as_nobody "$bin/pg_ctl" --pgdata="$dir/data" --log="$dir/log" --options="$options" --wait --timeout=300 start
}

postgres_log() { if [[ -s $dir/log ]]; then cat "$dir/log" >>"$home.log"; fi; }
