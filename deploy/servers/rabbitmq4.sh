# RabbitMQ 4.0, Debian 13's package.
suite=trixie
source "$here/lib/rabbitmq.sh"

variable=ROWRELAY_TEST_RABBITMQ4
by_name=only
