# SQL Server, only with Docker, because no package exists.
variable=ROWRELAY_TEST_SQLSERVER
by_name=only
optional=yes

get() { because "it is available only with Docker"; }
url() { echo "sqlserver://sa:Aa1-$password@127.0.0.1:$port?database=master"; }
