# Apicurio Registry with its data in memory, for tests of the Kafka sink's schemas. It has the REST API of Confluent's
# schema registry. Maven downloads its distribution, which runs on Debian's Java.
source "$here/lib/java.sh"

variable=ROWRELAY_TEST_REGISTRY
apicurio=3.0.9
sha256=2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43
program=$(cache)/apicurio-$apicurio

get() {
	if ! command -v java >/dev/null; then install_packages default-jre-headless || return; fi
	[[ ! -d $program ]] || return 0
	if ! command -v mvn >/dev/null; then install_packages maven || return; fi
	fetch >>"$home.log" 2>&1 || because "Apicurio Registry can't be fetched"
}

# fetch works in a temporary directory, so that the cache has only complete downloads.
fetch() {
	local aside archive=apicurio-registry-app-$apicurio-all.tar.gz
	mkdir -p "${program%/*}" && aside=$(mktemp -d "$program.XXXXXX") || return
	(cd "$aside" && mvn --quiet --batch-mode dependency:copy -DoutputDirectory="$aside" \
		-Dartifact="io.apicurio:apicurio-registry-app:$apicurio:tar.gz:all" && sha256sum --check <<<"$sha256  $archive" &&
		tar -xzf "$archive" && rm "$archive") && chmod 755 "$aside" && mv -T "$aside" "$program" ||
		{ rm -rf -- "$aside" && [[ -d $program ]]; }
}

start() {
	export QUARKUS_HTTP_HOST=127.0.0.1 QUARKUS_HTTP_PORT=$port
	start_java -Xmx192m -jar "$program/apicurio-registry-app-$apicurio-runner.jar"
}

url() { echo "http://127.0.0.1:$port/apis/ccompat/v7"; }
