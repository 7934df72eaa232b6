# MySQL, in the version that Debian unstable has now. It can't be pinned, so the server
# is optional.
source "$here/lib/debian.sh"
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MYSQL
optional=yes
files=$(cache)/mysql
own_options='--mysqlx=OFF --secure-file-priv='
# The options turn off two features on which tests that create a thousand tables spend a third of their time, even with the data in memory.
if [[ ${ROWRELAY_SERVERS_IN_MEMORY:-off} == on ]]; then own_options+=' --disable-log-bin --performance-schema=OFF'; fi

get() { from_debian unstable mysql-server-core "$files" && program=($(own_loader "$files") "$files/usr/sbin/mysqld"); }
init_data() { as_nobody "${program[@]}" $(common_options) --initialize-insecure; }
