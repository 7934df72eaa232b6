# PostgreSQL 15 for the bench, with logical decoding, which Debezium needs.
source "$here/postgres15.sh"

variable=ROWRELAY_BENCH_POSTGRESLOGICAL
more_options="-c wal_level=logical"
by_name=only
