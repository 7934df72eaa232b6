# MariaDB 11.8, Debian 13's package.
source "$here/lib/debian.sh"
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MARIADB118
scheme=mariadb
by_name=only
files=$(cache)/mariadb-11.8

get() { from_debian trixie mariadb-server-core "$files" && program=($(own_loader "$files") "$files/usr/sbin/mariadbd"); }
init_data() { init_mariadb; }
