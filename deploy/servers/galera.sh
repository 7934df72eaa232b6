# Galera, the library that makes several servers a cluster. A test starts the nodes itself, with MariaDB 10.11.
source "$here/lib/debian.sh"

variable=ROWRELAY_TEST_GALERA
by_name=only
version=26.4.23-0+deb12u1
files=$(cache)/galera-$version

get() { from_debian bookworm "galera-4=$version" "$files"; }

# words prints the path of the library.
words() { echo "$files/usr/lib/galera/libgalera_smm.so"; }

url() { :; }

start() { because "a test starts its nodes"; }
