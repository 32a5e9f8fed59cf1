package when

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // what repeats are held against
	"pgregory.net/rapid"
)

// TestRepeatAgainstSQLite has SQLite apply the same modifiers to the same base.
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
		base := time.Unix(rapid.Int64Range(-30_000_000_000, 250_000_000_000).Draw(r, "base"), 0).UTC() // the years 1019 to 9892
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
		if strings.HasPrefix(want.String, "-") { // SQLite knows years before 0
			want.String = ""
		}
		if got != want.String {
			r.Fatalf("%s of %s: %q, but SQLite says %q", text, base.Format(layout), got, want.String)
		}
	})
}
