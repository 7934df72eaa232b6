# Patroni with etcd and HAProxy, in Debian 12's versions. A test starts them itself, with PostgreSQL 15.
source "$here/lib/debian.sh"

variable=ROWRELAY_TEST_PATRONI
by_name=only
version=3.0.2-1
files=$(cache)/patroni-$version

get() { from_debian bookworm "patroni=$version python3-etcd python3.11-minimal etcd-server haproxy" "$files" && write_programs; }

# needed selects the libraries, including Python's, among the packages that apt would install.
needed() { awk '$1 == "Inst" && $2 ~ /^(lib|python3-)/ && $2 !~ /^(libperl|python3-etcd)/ { print $2 }'; }

# write_programs writes programs that start Patroni, etcd and HAProxy from the unpacked packages. Patroni starts PostgreSQL, so it must not
# change where PostgreSQL looks for libraries.
write_programs() {
	[[ ! -x $files/haproxy ]] || return 0
	program patroni "env PYTHONHOME=$files/usr $files/usr/bin/python3.11 $files/usr/bin/patroni" &&
		program etcd "$files/usr/bin/etcd" && program haproxy "$(own_loader "$files") $files/usr/sbin/haproxy"
}

# program NAME COMMAND
program() { printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$files/$1.new" && chmod 755 "$files/$1.new" && mv "$files/$1.new" "$files/$1"; }

# words prints the folder of the programs.
words() { echo "$files"; }

url() { :; }

start() { because "a test starts its nodes"; }
