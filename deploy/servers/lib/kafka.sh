# Downloads and starts Apache Kafka: its jars from Maven Central, on Debian's Java. A node is one
# process, which is both broker and controller.

log4j=2.25.3
stop_signal=KILL # immediately, because the data are deleted

# use VERSION SHA256 chooses Kafka's version. SHA256 is the checksum of a list that has the checksums of all jars.
use() { kafka=$1 sha256=$2 jars=$(cache)/kafka-$1; }

use 4.2.0 314e8ec264ceb9fc935c6286037b781c616591ac3fe933a37414e2678e0efb04

get() {
	if ! command -v java >/dev/null; then install_packages default-jre-headless || return; fi
	if ! command -v openssl >/dev/null; then install_packages openssl || return; fi
	[[ ! -d $jars ]] || return 0
	if ! command -v mvn >/dev/null; then install_packages maven || return; fi
	fetch >>"$home.log" 2>&1 || because "Kafka's jars can't be fetched"
}

# fetch works in a temporary directory, so that the cache has only complete downloads.
fetch() {
	local aside
	mkdir -p "${jars%/*}" && aside=$(mktemp -d "$jars.XXXXXX") || return
	kafka_pom >"$aside/pom.xml" && (cd "$aside" && mvn --quiet --batch-mode dependency:copy-dependencies \
		-DoutputDirectory="$aside") && sum_is_right "$aside" && chmod 755 "$aside" && mv -T "$aside" "$jars" ||
		{ rm -rf -- "$aside" && [[ -d $jars ]]; }
}

sum_is_right() (
	export LC_ALL=C # the order of the names
	cd "$1" && sha256sum --check <<<"$sha256  $(sha256sum ./*.jar >sums && echo sums)"
)

kafka_pom() {
	cat <<-POM
		<project>
			<modelVersion>4.0.0</modelVersion>
			<groupId>com.github.rowrelay</groupId><artifactId>kafka</artifactId><version>1</version>
			<dependencies>
				$(dependency org.apache.kafka kafka_2.13 "$kafka")
				$(dependency org.apache.kafka kafka-tools "$kafka")
				$(dependency org.apache.logging.log4j log4j-slf4j-impl "$log4j")
			</dependencies>
		</project>
	POM
}

dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }

# format_node NUMBER ARGUMENT… creates the node's empty log, as $dir/NUMBER.properties configures it.
format_node() {
	local number=$1 && shift
	quietly as_nobody java -Xmx128m -cp "$jars/*" kafka.tools.StorageTool format \
		--cluster-id rowrelay-test-cluster0 --config "$dir/$number.properties" "$@"
}

# write_node_program MEMORY writes the program $dir/node. Its argument is the number of the node to run. It writes
# the process id to $dir/NUMBER.pid. Tests that kill a node start the node again with this program. $dir/version has Kafka's version.
write_node_program() {
	echo "$kafka" >"$dir/version"
	cat >"$dir/node" <<-NODE
		#!/usr/bin/env bash
		echo \$\$ >"$dir/\$1.pid"
		$(companion)
		exec java -Xmx$1 -Xms$1 -XX:+UseSerialGC -Dlog4j2.level=WARN \\
			-cp "$jars/*" kafka.Kafka "$dir/\$1.properties"
	NODE
	chmod 755 "$dir/node"
}

# companion prints a command that the program "node" runs first.
companion() { :; }

# write_tool_program writes $dir/tool, which runs Kafka's own programs: tool CLASS ARGUMENT…
write_tool_program() {
	cat >"$dir/tool" <<-TOOL
		#!/usr/bin/env bash
		exec java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*" "\$@"
	TOOL
	chmod 755 "$dir/tool"
}

# node_listens NUMBER PORT waits until the node listens, and fails if it has ended.
node_listens() {
	local pid
	for _ in $(seq 3000); do
		! answers 127.0.0.1 "$2" || return 0
		pid=$(cat "$dir/$1.pid" 2>/dev/null || true)
		[[ -z $pid || -d /proc/$pid ]] || return 1
		sleep 0.1
	done
	return 1
}

# start_node NUMBER
start_node() { (cd / && as_nobody "$dir/node" "$1") </dev/null &>>"$dir/$1.log" 8>&- 9>&- & }

# properties NUMBER VOTERS LISTENERS prints the properties that every node has.
properties() {
	cat <<-PROPERTIES
		process.roles=broker,controller
		node.id=$1
		controller.quorum.voters=$2
		controller.listener.names=CONTROLLER
		listeners=$3
		log.dirs=$dir/$1
		auto.create.topics.enable=false
		log.cleaner.dedupe.buffer.size=4194304
		group.initial.rebalance.delay.ms=0
		offsets.topic.num.partitions=1
		transaction.state.log.num.partitions=1
		share.coordinator.state.topic.num.partitions=1
	PROPERTIES
}

kafka_log() { tail -qn 20 "$dir"/*.log >>"$home.log" 2>/dev/null || true; }
