# Debezium's connector for PostgreSQL, on Kafka Connect. The bench starts, stops and kills the worker. Maven
# downloads the connector and Kafka Connect, as it downloads Kafka.
source "$here/lib/kafka.sh"

variable=ROWRELAY_BENCH_DEBEZIUM
by_name=only
debezium=3.6.3.Final
jars=$(cache)/debezium-$debezium-$kafka
sha256=1d53e320687cce57272db70b23be9fc3c7117c82ef778233e091274835f9bc48 # the checksum of a list that has the checksums of all jars

kafka_pom() {
	cat <<-POM
		<project>
			<modelVersion>4.0.0</modelVersion>
			<groupId>com.github.rowrelay</groupId><artifactId>debezium</artifactId><version>1</version>
			<dependencies>
				$(dependency org.apache.kafka connect-runtime "$kafka")
				$(dependency org.apache.kafka connect-json "$kafka")
				$(dependency org.apache.kafka connect-transforms "$kafka")
				$(dependency io.debezium debezium-connector-postgres "$debezium")
				$(dependency org.apache.logging.log4j log4j-slf4j-impl "$log4j")
			</dependencies>
		</project>
	POM
}

# words prints the command that starts a worker. The command's arguments are a file with the worker's properties
# and a file with the connector's. Memory and garbage collector are set as in Kafka's connect-standalone.sh.
words() {
	printf '%s\n' "$(command -v java)" -Xms256M -Xmx2G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
		-XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true -Dlog4j2.level=INFO -cp "$jars/*" org.apache.kafka.connect.cli.ConnectStandalone
}

url() { :; }

start() { because "the bench starts it, with the command that 'servers words debezium' prints"; }
