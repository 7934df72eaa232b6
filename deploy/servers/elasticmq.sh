# ElasticMQ, an emulator of Amazon SQS with its data in memory, for tests of the plug-in for AWS. Maven downloads its
# jars, as it downloads Kafka.
source "$here/lib/kafka.sh"
source "$here/lib/java.sh"

variable=ROWRELAY_TEST_ELASTICMQ
elasticmq=1.6.14
jars=$(cache)/elasticmq-$elasticmq
sha256=39fa99649647e2cff21f5aedc79477df53398ec21df663e610495b4bf102ae74 # the checksum of a list that has the checksums of all jars
stop_signal=TERM

kafka_pom() {
	cat <<-POM
		<project>
			<modelVersion>4.0.0</modelVersion>
			<groupId>com.github.rowrelay</groupId><artifactId>elasticmq</artifactId><version>1</version>
			<dependencies>
				$(dependency org.elasticmq elasticmq-server_2.13 "$elasticmq")
			</dependencies>
		</project>
	POM
}

# With strict limits, ElasticMQ refuses what SQS refuses.
start() {
	cat >"$dir/elasticmq.conf" <<-CONF
		include classpath("application.conf")
		node-address { protocol = http, host = "127.0.0.1", port = $port, context-path = "" }
		rest-sqs { enabled = true, bind-port = $port, bind-hostname = "127.0.0.1", sqs-limits = strict }
		rest-stats { enabled = false }
	CONF
	start_java -Xmx256m -Dconfig.file="$dir/elasticmq.conf" -cp "$jars/*" org.elasticmq.server.Main
}

url() { echo "http://127.0.0.1:$port"; }
