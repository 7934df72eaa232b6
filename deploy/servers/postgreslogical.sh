# PostgreSQL 15 whose write-ahead log can be decoded, as Debezium needs it: for the bench.
source "$here/postgres15.sh"

variable=ROWRELAY_BENCH_POSTGRESLOGICAL
more_options="-c wal_level=logical"
by_name=only
