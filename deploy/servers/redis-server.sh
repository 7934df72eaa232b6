# Redis, for tests of the plug-in for Redis streams.
source "$here/lib/program.sh"

variable=ROWRELAY_TEST_REDIS
