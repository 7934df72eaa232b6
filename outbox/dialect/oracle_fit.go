package dialect

import (
	"fmt"
	"strconv"
	"strings"
)

// Server asks for what matters here and needs no right: the version, how texts
// are compared, and in which characters they are kept.
func (oracle) Server() Query {
	return Query{SQL: "SELECT 'version', MAX(version) FROM product_component_version WHERE product LIKE 'Oracle%'\n" +
		"UNION ALL SELECT LOWER(parameter), value FROM nls_session_parameters WHERE parameter = 'NLS_COMP'\n" +
		"UNION ALL SELECT LOWER(parameter), value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"}
}

// Skipping returns nil: Oracle skips locked rows since it knows the words.
func (oracle) Skipping(Table) *Trial { return nil }

// Fit refuses servers before 12.2.
func (o oracle) Fit(server Server) (Fit, error) {
	version := server.Facts["version"]
	if !oracleAtLeast(version, 12, 2) {
		return Fit{}, fmt.Errorf("the server is Oracle Database %s, and 12.2 or later is needed", version)
	}
	return Fit{Dialect: o, Notes: []Note{
		{Name: "server", OK: true, Detail: "Oracle Database " + version},
		oracleCharacters(server.Facts["nls_characterset"]),
		oracleComparison(server.Facts["nls_comp"]),
	}}, nil
}

func oracleAtLeast(version string, major, minor int) bool {
	parts := strings.Split(version+".0", ".")
	first, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	second, _ := strconv.Atoi(parts[1])
	return first > major || first == major && second >= minor
}

func oracleCharacters(set string) Note {
	return Note{Name: "characters", OK: set == "AL32UTF8" || set == "UTF8", Detail: "the database keeps texts in " + set,
		Hint: "topics, keys and headers must have no other characters than these; payloads may have any bytes"}
}

func oracleComparison(nlsComp string) Note {
	return Note{Name: "comparison", OK: nlsComp == "BINARY", Detail: "NLS_COMP is " + nlsComp,
		Hint: "leave NLS_COMP at BINARY for this user: names of relays that differ by case alone may count as one, and indexes of names are not used"}
}
