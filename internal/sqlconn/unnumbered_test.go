package sqlconn_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

func TestUnnumbered(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT 1":                      "SELECT 1",
		"VALUES ($1, CAST($2 AS text))": "VALUES (?, CAST(? AS text))",
		"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)": "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		"SELECT $2, $1":                           "SELECT $2, $1",
		"SELECT $1, $1":                           "SELECT $1, $1",
		"SELECT $1, $3":                           "SELECT $1, $3",
		`SELECT '$1', "$2", $1, '''' || $2`:       `SELECT '$1', "$2", ?, '''' || ?`,
		"SELECT $1, json_extract(data, '$.name')": "SELECT ?, json_extract(data, '$.name')",
	} {
		if got := sqlconn.Unnumbered(query); got != want {
			t.Errorf("%s becomes %s, want %s", query, got, want)
		}
	}
}
