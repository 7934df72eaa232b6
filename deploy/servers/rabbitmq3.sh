# Three nodes of RabbitMQ 3.10 in a cluster.
suite=bookworm
source "$here/lib/rabbitmq.sh"

variable=ROWRELAY_TEST_RABBITMQ3
by_name=only
nodes=3
