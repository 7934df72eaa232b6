# PostgreSQL 19, a release candidate in Debian's experimental suite, with libraries of Debian unstable. Its version can't be pinned, so the
# server is optional.
source "$here/lib/debian.sh"
source "$here/lib/postgres.sh"

variable=ROWRELAY_TEST_POSTGRES19
by_name=only
optional=yes
files=$(cache)/postgres-19
bin=$files/usr/lib/postgresql/19/bin

# By default apt prefers unstable's packages to newer ones of the experimental suite, but the client needs the newer libpq.
preferences='Package: libpq5
Pin: release a=experimental
Pin-Priority: 500'

get() { from_debian_relocated "experimental unstable" "postgresql-19 postgresql-client-19" "$files"; }
relocate() { with_own_loader "$files" "$bin"/{initdb,pg_ctl,pg_basebackup,pg_dump,postgres}; }
