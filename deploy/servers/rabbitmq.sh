# RabbitMQ 3.10, Debian 12's package.
suite=bookworm
source "$here/lib/rabbitmq.sh"

variable=ROWRELAY_TEST_RABBITMQ
