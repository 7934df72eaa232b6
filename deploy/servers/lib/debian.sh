# Programs from another release of Debian than the machine's. They are unpacked with all their
# libraries into a separate directory, and not installed.

# from_debian SUITE "PACKAGE[=VERSION]…" TARGET unpacks the packages into TARGET, unless TARGET exists. It
# works in a temporary directory, so that the cache has only complete packages. $preferences, if set, are apt's preferences, in
# the format of apt_preferences(5). The machine's own preferences don't apply.
from_debian() {
	local aside target=$3
	[[ ! -d $target ]] || return 0
	command -v apt-get dpkg-deb >/dev/null || because "apt-get is missing, so $2 can't be fetched" || return
	mkdir -p "${target%/*}" && aside=$(mktemp -d "$target.XXXXXX") || return
	quietly fetch_and_unpack "$1" "$2" "$aside" && chmod 755 "$aside" && mv -T "$aside" "$target" ||
		{ rm -rf -- "$aside" && [[ -d $target ]]; } || because "$2 of Debian's $1 can't be fetched" # another clone may have been first
}

fetch_and_unpack() {
	local file package=$2 packages aside=$3
	mkdir -p "$aside"/{apt/lists/partial,apt/archives/partial,packages}
	debian_source "$1" >"$aside/apt/list.sources" && echo "${preferences:-}" >"$aside/apt/preferences" && touch "$aside/apt/status" && aside_apt update &&
		packages=$(aside_apt install --simulate --no-install-recommends $package | needed) &&
		(cd "$aside/packages" && aside_apt download $package $packages) || return
	for file in "$aside"/packages/*.deb; do dpkg-deb --extract "$file" "$aside" || return; done
	rm -rf -- "$aside"/{apt,packages,usr/share/{doc,man}}
}

# aside_apt ACTION… runs apt with the machine's settings, but with separate sources and a
# separate state in which nothing is installed. apt checks the signatures.
aside_apt() {
	apt-get --quiet=2 -o Dir::State="$aside/apt" -o Dir::State::status="$aside/apt/status" -o Dir::Cache="$aside/apt" \
		-o Dir::Etc::sourcelist="$aside/apt/list.sources" -o Dir::Etc::sourceparts=- \
		-o Dir::Etc::preferences="$aside/apt/preferences" -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# needed selects the libraries among the packages that apt would install.
needed() { awk '$1 == "Inst" && $2 ~ /^lib/ && $2 !~ /^libperl/ { print $2 }'; }

# debian_source SUITE prints the source of that suite on the machine's own mirror.
debian_source() {
	local uri keys=/usr/share/keyrings/debian-archive-keyring.gpg
	uri=$(source /etc/os-release && apt-get indextargets --format '$(REPO_URI)' \
		"Created-By: Packages" "Release: $VERSION_CODENAME" "Component: main" | grep -m 1 '/debian/$') || return
	printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$uri" "$1" "$keys"
}

# own_loader ROOT prints the start of a command line that runs a program below ROOT with the
# libraries below ROOT, and with none of the machine's libraries.
own_loader() {
	local loader libraries
	loader=$(find "$1" -name 'ld-linux*.so.*' | head -n 1)
	libraries=$(find "$1" -maxdepth 3 -path "*/lib/*-linux-gnu*" -prune | paste -sd:)
	echo "$loader --library-path $libraries"
}

# from_debian_relocated SUITE PACKAGES TARGET is like from_debian, and then calls relocate, which changes the programs in TARGET. It takes
# a lock, because several servers and several clones of the repository share the programs.
from_debian_relocated() {
	local lock
	mkdir -p "$(cache)" && exec {lock}>>"$3.lock" && flock "$lock"
	[[ -e $3/relocated ]] || { from_debian "$@" && relocate && touch "$3/relocated"; } || return
	exec {lock}>&-
}

# with_own_loader ROOT PROGRAM… replaces programs below ROOT with scripts that start them with own_loader.
with_own_loader() {
	local program root=$1 && shift
	for program; do
		[[ -e $program.elf ]] || mv "$program" "$program.elf" || return
		printf '#!/bin/sh\nexec %s "%s.elf" "$@"\n' "$(own_loader "$root")" "$program" >"$program" && chmod 755 "$program" || return
	done
}
