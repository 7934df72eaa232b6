# RabbitMQ 4.3, Debian unstable's package. Its version can't be pinned, so the server is optional.
suite=unstable
source "$here/lib/rabbitmq.sh"

variable=ROWRELAY_TEST_RABBITMQ43
by_name=only
optional=yes
