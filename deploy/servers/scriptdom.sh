# ScriptDom, Microsoft's parser of T-SQL. It is part of maxdop, a formatter, which a wheel on PyPI contains as a native
# program.
source "$here/lib/program.sh"

variable=ROWRELAY_TEST_SCRIPTDOM
by_name=only
maxdop=0.1.3
sha256=58bd84337623c5ebd9e6b27c3756fa50b6fc13ae5e71315aa990cadaf5a67f25
files=$(cache)/maxdop-$maxdop

program() { echo "$files/maxdop"; }

get() {
	[[ ! -x $files/maxdop ]] || return 0
	[[ $(uname -sm) == "Linux x86_64" ]] || because "the program is for Linux on x86-64" || return
	command -v pip3 >/dev/null || install_packages python3-pip || return
	command -v unzip >/dev/null || install_packages unzip || return
	fetch_wheel >>"$home.log" 2>&1 || because "maxdop $maxdop can't be fetched from PyPI"
}

# fetch_wheel works in a temporary directory, so that the cache has only complete downloads.
fetch_wheel() {
	local aside wheel=maxdop-$maxdop-py3-none-manylinux_2_17_x86_64.whl
	mkdir -p "${files%/*}" && aside=$(mktemp -d "$files.XXXXXX") || return
	(cd "$aside" && pip3 download --quiet --no-deps --only-binary=:all: "maxdop==$maxdop" && sha256sum --check <<<"$sha256  $wheel" &&
		unzip -qj "$wheel" "maxdop-$maxdop.data/scripts/maxdop" && rm "$wheel" && chmod 755 maxdop .) && mv -T "$aside" "$files" ||
		{ rm -rf -- "$aside" && [[ -d $files ]]; }
}
