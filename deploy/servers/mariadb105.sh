# MariaDB 10.5, the last one without SKIP LOCKED, from Debian 11.
source "$here/lib/debian.sh"
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MARIADB105
scheme=mariadb
version=1:10.5.23-0+deb11u1
files=$(cache)/mariadb-${version#*:}

get() { from_debian bullseye "mariadb-server-core-10.5=$version" "$files" && program=($(own_loader "$files") "$files/usr/sbin/mariadbd"); }
init_data() { init_mariadb; }
