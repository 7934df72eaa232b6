# faketime, a library that shifts the clock of a program. A test starts servers with it.
source "$here/lib/debian.sh"

variable=ROWRELAY_TEST_FAKETIME
by_name=only
version=0.9.10-2.1
files=$(cache)/faketime-$version

get() { from_debian bookworm "libfaketime=$version" "$files"; }

# words prints the path of the library.
words() { echo "$files"/usr/lib/*/faketime/libfaketimeMT.so.1; }

url() { :; }

start() { because "a test starts the servers"; }
