# MySQL, whichever version Debian's unstable has now. That can't be pinned, so
# nothing requires this server.
source "$here/lib/debian.sh"
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MYSQL
optional=yes
files=$(cache)/mysql
own_options='--mysqlx=OFF --secure-file-priv='

get() { from_debian unstable mysql-server-core "$files" && program=($(own_loader "$files") "$files/usr/sbin/mysqld"); }
init_data() { as_nobody "${program[@]}" $(common_options) --initialize-insecure; }
