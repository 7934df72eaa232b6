# MariaDB 10.11, Debian's own package: the server program alone, without the files that
# would start it at boot.
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MARIADB1011
scheme=mariadb
files=
program=(/usr/sbin/mariadbd)

get() {
	[[ -x /usr/sbin/mariadbd ]] || install_packages mariadb-server-core || return
	[[ $(/usr/sbin/mariadbd --version) == *" 10.11."* ]] || because "the machine's MariaDB is another version"
}

init_data() { init_mariadb; }
