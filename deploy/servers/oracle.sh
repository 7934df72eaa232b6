# Oracle, only with Docker, because no package exists. Its tests need the build tag oracle.
variable=ROWRELAY_TEST_ORACLE
by_name=only
optional=yes

get() { because "it is available only with Docker"; }
url() { echo "oracle://system:$password@127.0.0.1:$port/FREEPDB1"; }
