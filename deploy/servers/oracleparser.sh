# Two parsers of Oracle's SQL and PL/SQL, as jars that Maven downloads: Druid's, and one that OceanBase has generated from a
# grammar for ANTLR.
source "$here/lib/kafka.sh"
source "$here/lib/program.sh"

variable=ROWRELAY_TEST_ORACLEPARSER
by_name=only
druid=1.2.28
oceanbase=1.4.0
jars=$(cache)/oracleparsers-$druid-$oceanbase
sha256=1ba48a74c098035e959158927d14fbbe5af8f37604090ae03dc4b7a21f19f05f # the checksum of a list that has the checksums of all jars

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
				$(alone com.oceanbase ob-sql-parser "$oceanbase")
				$(alone org.antlr antlr4-runtime 4.9.1)
			</dependencies>
		</project>
	POM
}

# alone is like the function dependency, but excludes the artifact's own dependencies.
alone() {
	dependency "$@" | sed 's|</dependency>|<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>&|'
}
