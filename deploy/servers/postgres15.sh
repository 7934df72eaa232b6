# PostgreSQL 15, Debian's own package.
source "$here/lib/postgres.sh"

variable=ROWRELAY_TEST_POSTGRES15
bin=/usr/lib/postgresql/15/bin

get() {
	if [[ ! -x $bin/postgres ]]; then no_main_cluster && install_packages postgresql-15; fi
}

# no_main_cluster keeps the package from creating a server that starts at boot, on machines
# that never had PostgreSQL.
no_main_cluster() {
	[[ ! -e /etc/postgresql-common/createcluster.conf ]] || return 0
	install_packages postgresql-common &&
		sed -i 's/^#create_main_cluster .*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
}
