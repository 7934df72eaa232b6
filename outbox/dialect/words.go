package dialect

import "strings"

// reserved has the words that PostgreSQL, SQLite, SQL Server or Oracle don't take as the
// name of a table or schema unless they are quoted; all but public, which is the
// name of a schema on PostgreSQL, and on SQL Server that of a role.
var reserved = wordSet(`
	access add all alter analyse analyze and any array as asc asymmetric audit
	authorization autoincrement backup begin between binary both break browse bulk
	by cascade case cast char check checkpoint close cluster clustered coalesce
	collate collation column comment commit compress compute concurrently constraint
	contains containstable continue convert create cross current current_catalog
	current_date current_role current_schema current_time current_timestamp
	current_user cursor database date dbcc deallocate decimal declare default
	deferrable delete deny desc disk distinct distributed do double drop dump else
	end errlvl escape except exclusive exec execute exists exit external false fetch
	file fillfactor float for foreign freetext freetexttable freeze from full
	function goto grant group having holdlock identified identity identity_insert
	identitycol if ilike immediate in increment index initial initially inner insert
	integer intersect into is isnull join key kill lateral leading left level like
	limit lineno load localtime localtimestamp lock long maxextents merge minus mode
	modify national natural noaudit nocheck nocompress nonclustered not nothing
	notnull nowait null nullif number of off offline offset offsets on online only
	open opendatasource openquery openrowset openxml option or order outer over
	overlaps pctfree percent pivot placing plan precision primary print prior proc
	procedure raiserror raw read readtext reconfigure references rename replication
	resource restore restrict return returning revert revoke right rollback row
	rowcount rowguidcol rowid rownum rows rule save schema securityaudit select
	semantickeyphrasetable semanticsimilaritydetailstable semanticsimilaritytable
	session session_user set setuser share shutdown similar size smallint some start
	statistics successful symmetric synonym sysdate system_user table tablesample
	textsize then to top trailing tran transaction trigger true truncate try_convert
	tsequal uid union unique unpivot update updatetext use user using validate
	values varchar varchar2 variadic varying verbose view waitfor when whenever
	where while window with within writetext`)

func wordSet(text string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}
