package when

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the reference for repeats
	"pgregory.net/rapid"
)

// TestRepeatAgainstSQLite checks repeats against SQLite with the same modifiers and base.
// Promises: B52.
func TestRepeatAgainstSQLite(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	const layout = "2006-01-02 15:04:05"
	rapid.Check(t, func(r *rapid.T) {
		text := genRepeat().Draw(r, "repeat")
		// the years 1019 to 9892
		base := time.Unix(rapid.Int64Range(-30_000_000_000, 250_000_000_000).Draw(r, "base"), 0).UTC()
		spec, err := ParseRepeat(text)
		if err != nil {
			r.Fatal(err)
		}
		got, want := "", sql.NullString{}
		if at, err := spec.After(base, base, base); err == nil {
			got = at.Format(layout)
		}
		args := []any{base.Format(layout)}
		for _, mod := range strings.Split(text, ", ")[1:] {
			args = append(args, mod)
		}
		query := "SELECT datetime(?" + strings.Repeat(", ?", len(args)-1) + ")"
		if err := db.QueryRowContext(t.Context(), query, args...).Scan(&want); err != nil {
			r.Fatal(err)
		}
		if strings.HasPrefix(want.String, "-") { // SQLite has years before 0
			want.String = ""
		}
		if got != want.String {
			r.Fatalf("%s of %s: %q, but SQLite says %q", text, base.Format(layout), got, want.String)
		}
	})
}
