# Druid's parser of Oracle's SQL and PL/SQL, as jars that Maven downloads.
source "$here/lib/kafka.sh"
source "$here/lib/program.sh"

variable=ROWRELAY_TEST_ORACLEPARSER
by_name=only
druid=1.2.28
jars=$(cache)/druid-$druid
sha256=56dcffcd2c4e914d965a16ec6879bef01da4dd94c0e9301aaf026c176b283144 # of the list of the jars' checksums

program() { echo "$jars"; }

get() {
	command -v javac >/dev/null || install_packages default-jdk-headless || return
	[[ ! -d $jars ]] || return 0
	if ! command -v mvn >/dev/null; then install_packages maven || return; fi
	fetch >>"$home.log" 2>&1 || because "the parsers' jars can't be fetched"
}

kafka_pom() {
	cat <<-POM
		<project>
			<modelVersion>4.0.0</modelVersion>
			<groupId>com.github.rowrelay</groupId><artifactId>oracleparser</artifactId><version>1</version>
			<dependencies>
				$(alone com.alibaba druid "$druid")
				$(alone org.apache.commons commons-lang3 3.12.0)
			</dependencies>
		</project>
	POM
}

# alone is dependency without the artifact's own dependencies.
alone() {
	dependency "$@" | sed 's|</dependency>|<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>&|'
}
