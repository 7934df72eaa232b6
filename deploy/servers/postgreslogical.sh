# PostgreSQL 15 with logical decoding, which Debezium needs, for the bench.
source "$here/postgres15.sh"

variable=ROWRELAY_BENCH_POSTGRESLOGICAL
more_options="-c wal_level=logical"
by_name=only
