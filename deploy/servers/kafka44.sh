# Apache Kafka 4.4, one node.
source "$here/lib/kafka_node.sh"

variable=ROWRELAY_TEST_KAFKA44
by_name=only
use 4.4.0 6ffd142c24ba40014309e1f9d50d1c45c4eab6aec2d638901d59c4b9c469a48f
