# Apache Kafka 3.9, one node.
source "$here/lib/kafka_node.sh"

variable=ROWRELAY_TEST_KAFKA39
by_name=only
use 3.9.2 a2740936220ee59f814f87d2e0b9a584ce2a8f99e88ccb1efaffc37a67922279
