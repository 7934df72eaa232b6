# Apache Kafka 2.8, one node. It needs ZooKeeper, because without ZooKeeper this version has no access rules and no SCRAM.
source "$here/lib/kafka_node.sh"

variable=ROWRELAY_TEST_KAFKA28
by_name=only
authorizer=kafka.security.authorizer.AclAuthorizer
use 2.8.2 2d2986c3697087d121c551f05ba87a1635ca8c2fdcf38e508d0cfaf96dc42286

start() {
	start_one_node && quietly as_nobody "$dir/tool" kafka.admin.ConfigCommand --bootstrap-server "127.0.0.1:$port" --alter --entity-type users \
		--entity-name rowrelay --add-config "SCRAM-SHA-256=[password=$password],SCRAM-SHA-512=[password=$password]"
}

# properties NUMBER VOTERS LISTENERS. The first listener, which in other versions is the controller's, is ZooKeeper's.
properties() {
	cat <<-PROPERTIES
		broker.id=$1
		zookeeper.connect=127.0.0.1:$controller
		listeners=${3#*,}
		log.dirs=$dir/$1
		auto.create.topics.enable=false
		log.cleaner.dedupe.buffer.size=4194304
		group.initial.rebalance.delay.ms=0
		offsets.topic.num.partitions=1
		transaction.state.log.num.partitions=1
	PROPERTIES
}

# format writes ZooKeeper's properties. Kafka 2.8 creates its log itself when it starts. It can't read a PEM file whose
# key has no password, so format converts the file to PKCS12.
format() {
	(cd "$dir" && as_nobody openssl pkcs12 -export -in server.pem -out server.p12 -passout "pass:$password") || return
	printf '%s\n' ssl.keystore.type=PKCS12 ssl.keystore.location="$dir/server.p12" ssl.{keystore,key}.password="$password" >>"$dir/1.properties"
	cat >"$dir/zookeeper.properties" <<-PROPERTIES
		dataDir=$dir/zookeeper
		clientPort=$controller
		clientPortAddress=127.0.0.1
		admin.enableServer=false
	PROPERTIES
}

# companion starts ZooKeeper, which is killed with the node.
companion() {
	echo "setpriv --pdeathsig KILL java -Xmx64m -XX:+UseSerialGC -Dlog4j2.level=WARN -cp '$jars/*' org.apache.zookeeper.server.quorum.QuorumPeerMain '$dir/zookeeper.properties' &"
}
