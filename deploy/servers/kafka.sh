# Apache Kafka 4.2, one node.
source "$here/lib/kafka_node.sh"

variable=ROWRELAY_TEST_KAFKA
