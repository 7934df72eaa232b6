# PgBouncer, for tests of a pooler.
source "$here/lib/program.sh"

variable=ROWRELAY_TEST_PGBOUNCER
