# MySQL, whichever version Debian's unstable has now. That can't be pinned, so
# nothing requires this server.
source "$here/lib/debian.sh"
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MYSQL
optional=yes
files=$(cache)/mysql
own_options='--mysqlx=OFF --secure-file-priv='
# In memory are tests, which make a thousand tables: a third of their time went into these two.
if [[ ${ROWRELAY_SERVERS_IN_MEMORY:-off} == on ]]; then own_options+=' --disable-log-bin --performance-schema=OFF'; fi

get() { from_debian unstable mysql-server-core "$files" && program=($(own_loader "$files") "$files/usr/sbin/mysqld"); }
init_data() { as_nobody "${program[@]}" $(common_options) --initialize-insecure; }
