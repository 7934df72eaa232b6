# Starts any MySQL or MariaDB. A server's file sets $files, the directory that contains its usr/, and
# $program, its command line. It defines the function init_data, which fills $dir/data. $own_options, if
# set, are further options of this server.

scheme=mysql
url() { echo "$scheme://root:$password@127.0.0.1:$port/"; }

words() { printf '%s\n' "${program[@]}"; }

start() {
	write_users && as_nobody mkdir "$dir/tmp" && quietly init_data && quietly launch && until_ready || { server_log && return 1; }
}

# The collation isn't binary and the time zone isn't UTC, so that tests notice code that relies
# on a binary collation or on UTC. All other settings, such as isolation levels, have their defaults, as on users'
# servers.
#
# exec replaces the shell with the program. Otherwise a shell would run in the background and hold the
# scripts' locks, which the function `quietly` closes only for the program.
launch() {
	(
		ulimit -n "$(ulimit -Hn)"
		exec $(as_user) "${program[@]}" $(common_options) --bind-address=127.0.0.1 --port="$port" --skip-name-resolve \
			--init-file="$dir/users.sql" --pid-file="$dir/pid" --log-error="$dir/log.err" \
			--max-connections=500 --default-time-zone=+05:45 --character-set-server=utf8mb4 \
			--collation-server=utf8mb4_unicode_ci --innodb-buffer-pool-size=256M $(unsafe_options) </dev/null
	) &
}

as_user() { if is_root; then echo "runuser -u $user --"; fi; }

# unsafe_options prints options with which a commit survives a crash of the server, but not of the machine.
unsafe_options() {
	[[ ${ROWRELAY_SERVERS_FSYNC:-off} == on ]] || echo "--innodb-flush-log-at-trx-commit=2 --sync-binlog=0"
}

# common_options prints options that ignore the machine's configuration and give the server its own
# directories, because a server that starts deletes the temporary tables that it finds.
common_options() {
	echo "--no-defaults --basedir=$files/usr --datadir=$dir/data --tmpdir=$dir/tmp --socket=$dir/socket ${own_options:-}"
}

# write_users writes the SQL that the server runs at each start, before it accepts connections.
write_users() {
	(
		umask 077
		cat >"$dir/users.sql" <<-SQL
			CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '$password';
			GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
			DROP USER IF EXISTS root@localhost, root@127.0.0.1, root@'::1';
		SQL
	)
	if is_root; then chown "$user" "$dir/users.sql"; fi
}

# until_ready reads the log before the process id. The server writes its id before it is ready, so the id
# of a ready server is always known, and the server can be stopped.
until_ready() {
	local _ ready
	for _ in $(seq 3000); do
		ready=
		if grep -qs 'd: ready for connections' "$dir/log.err"; then ready=yes; fi
		if [[ -s $dir/pid ]]; then head -n 1 "$dir/pid" >"$home.pid"; fi
		if [[ -n $ready && -s $home.pid ]]; then return; fi
		if grep -qs '\[ERROR\].* Aborting' "$dir/log.err"; then return 1; fi
		sleep 0.1
	done
	return 1
}

server_log() { if [[ -s $dir/log.err ]]; then cat "$dir/log.err" >>"$home.log"; fi; }

# init_mariadb does what mariadb-install-db does, but doesn't use the machine's own programs and
# libraries, whose versions may differ.
init_mariadb() {
	as_nobody mkdir "$dir/data" && mariadb_tables | as_nobody "${program[@]}" $(common_options) --bootstrap
}

# Debian and Maven Central have the SQL files in different folders, and from version 11 on, the names begin with mariadb.
mariadb_tables() {
	local tables
	for tables in "$files"/usr/share{/mysql,/mariadb,}/{mysql,mariadb}; do [[ ! -f ${tables}_system_tables.sql ]] || break; done
	printf "%s;\n" "CREATE DATABASE mysql" "USE mysql" "SET @auth_root_socket = NULL, @skip_auth_anonymous = 1"
	cat "$tables"_{system_tables,performance_tables}.sql
	sed '/@current_hostname/d' "$tables"_system_tables_data.sql
	cat "${tables%/*}/maria_add_gis_sp_bootstrap.sql"
	if [[ -f ${tables}_sys_schema.sql ]]; then cat "${tables}_sys_schema.sql"; fi
}
