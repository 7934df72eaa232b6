package dialect

import "strings"

// reserved has the words that PostgreSQL, SQLite or SQL Server don't take as the
// name of a table or schema unless they are quoted; all but public, which is the
// name of a schema on PostgreSQL, and on SQL Server that of a role.
var reserved = wordSet(`
	add all alter analyse analyze and any array as asc asymmetric authorization
	autoincrement backup begin between binary both break browse bulk by cascade case
	cast check checkpoint close clustered coalesce collate collation column commit
	compute concurrently constraint contains containstable continue convert create
	cross current current_catalog current_date current_role current_schema
	current_time current_timestamp current_user cursor database dbcc deallocate
	declare default deferrable delete deny desc disk distinct distributed do double
	drop dump else end errlvl escape except exec execute exists exit external false
	fetch file fillfactor for foreign freetext freetexttable freeze from full
	function goto grant group having holdlock identity identity_insert identitycol
	if ilike in index initially inner insert intersect into is isnull join key kill
	lateral leading left like limit lineno load localtime localtimestamp merge
	national natural nocheck nonclustered not nothing notnull null nullif of off
	offset offsets on only open opendatasource openquery openrowset openxml option
	or order outer over overlaps percent pivot placing plan precision primary print
	proc procedure raiserror read readtext reconfigure references replication
	restore restrict return returning revert revoke right rollback rowcount
	rowguidcol rule save schema securityaudit select semantickeyphrasetable
	semanticsimilaritydetailstable semanticsimilaritytable session_user set setuser
	shutdown similar some statistics symmetric system_user table tablesample
	textsize then to top trailing tran transaction trigger true truncate try_convert
	tsequal union unique unpivot update updatetext use user using values variadic
	varying verbose view waitfor when where while window with within writetext`)

func wordSet(text string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}
