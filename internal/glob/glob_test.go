package glob_test

import (
	"database/sql"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	_ "modernc.org/sqlite" // the reference implementation of GLOB

	"github.com/swarmiji/swarmiji/internal/glob"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	asks := oracle(t)
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"", []string{""}, []string{"a"}},
		{"a", []string{"a"}, []string{"A", "", "ab", "ba"}},
		{"*", []string{"", "a", "a/b", "é"}, nil},
		{"***", []string{"", "a", "a/b", "é"}, nil},
		{"a*", []string{"a", "a/b", "aé"}, []string{"", "ba"}},
		{"*b", []string{"b", "a/b", "bb"}, []string{"", "ba"}},
		{"a*b*c", []string{"abc", "aabbcc", "abcbc"}, []string{"acb", "abcd"}},
		{"?", []string{"a", "/", "é", "€", "😀"}, []string{"", "ab"}},
		{"*?", []string{"a", "ab"}, []string{""}},
		{"*?b*?*", []string{"abc", "aabcc", "bbb"}, []string{"ab", "bc", "b"}},
		{"[abc]", []string{"a", "b", "c"}, []string{"", "d", "ab"}},
		{"[a-c]x", []string{"ax", "bx", "cx"}, []string{"dx", "-x", "x"}},
		{"[^a-c]", []string{"d", "-", "é"}, []string{"a", "b", "c", ""}},
		{"[^]]", []string{"a", "^"}, []string{"]", ""}},
		{"[]]", []string{"]"}, []string{"[", ""}},
		{"[]a]", []string{"]", "a"}, []string{"]a]"}},
		{"[a-]", []string{"a", "-"}, []string{"b"}},
		{"[-a]", []string{"a", "-"}, []string{"b"}},
		{"[]-a]", []string{"]", "-", "a"}, []string{"^", "_"}},
		{"[a-c-e]", []string{"a", "b", "c", "-", "e"}, []string{"d", "f"}},
		{"[!a]", []string{"!", "a"}, []string{"b"}},
		{"[z-a]", []string{"z"}, []string{"a", "m", "-"}},
		{"[a", nil, []string{"", "a", "[a"}},
		{"[a-", nil, []string{"", "a", "-", "[a-"}},
		{"*[", nil, []string{"", "[", "a["}},
		{"[]", nil, []string{"", "]", "[]"}},
		{"[^]", nil, []string{"", "^", "a"}},
		{`\*`, []string{`\`, `\a`}, []string{"*"}},
		{"[*]", []string{"*"}, []string{"a"}},
		{"*[0-9]z", []string{"0z", "a12z"}, []string{"z", "0z1"}},
		{"[é-ü]", []string{"é", "ê", "ü"}, []string{"e", "à"}},
		{"a\x00b", []string{"a", "a\x00c"}, []string{"ab"}},
	} {
		p := glob.Compile(c.pattern)
		for _, name := range c.yes {
			if !p.Match(name) || !asks(t, c.pattern, name) {
				t.Errorf("%q does not match %q", c.pattern, name)
			}
		}
		for _, name := range c.no {
			if p.Match(name) || asks(t, c.pattern, name) {
				t.Errorf("%q matches %q", c.pattern, name)
			}
		}
	}
}

func TestZeroPattern(t *testing.T) {
	t.Parallel()
	var p glob.Pattern
	if name, ok := p.Exact(); !p.Match("") || p.Match("a") || name != "" || !ok {
		t.Errorf("the zero pattern is not that of the empty text: %q, %v", name, ok)
	}
}

func TestExactAndPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, prefix string
		exact, never    bool
	}{
		{pattern: "", exact: true},
		{pattern: "abc", prefix: "abc", exact: true},
		{pattern: "a/é", prefix: "a/é", exact: true},
		{pattern: "a[*]b", prefix: "a*b", exact: true},
		{pattern: "[[]", prefix: "[", exact: true},
		{pattern: "[]]", prefix: "]", exact: true},
		{pattern: "[^a]", prefix: ""},
		{pattern: "ab*", prefix: "ab"},
		{pattern: "ab?c", prefix: "ab"},
		{pattern: "ab[cd]e", prefix: "ab"},
		{pattern: "*ab", prefix: ""},
		{pattern: "ab[", never: true},
		{pattern: "*[a", never: true},
		{pattern: "a\ufffdb", prefix: "a"}, // invalid UTF-8 is also read as this character
		{pattern: "a\uffffb", prefix: "a"},
		{pattern: "a\x80b", prefix: "a\u0080b", exact: true}, // SQLite reads the byte as "\u0080"
	} {
		p := glob.Compile(c.pattern)
		name, ok := p.Exact()
		if ok != c.exact || ok && name != c.prefix || p.Prefix() != c.prefix || p.Never() != c.never {
			t.Errorf("%q: exact %q, %v; prefix %q; never %v", c.pattern, name, ok, p.Prefix(), p.Never())
		}
	}
}

// TestHardPatterns shows that Match does not try all combinations of the stars' lengths. Otherwise
// the test would practically never end.
func TestHardPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pattern, name string }{
		{strings.Repeat("*a*a*a*a*b", 1000), strings.Repeat("a", 10_000)},
		{strings.Repeat("*[a-c]?", 1000) + "z", strings.Repeat("abc", 3000)},
		{"*" + strings.Repeat("a", 500) + "b", strings.Repeat("a", 10_000)},
		{strings.Repeat("*?", 3000) + "z", strings.Repeat("é", 5000)},
		{"*[" + strings.Repeat("x", 1000) + "]", strings.Repeat("a", 10_000)},
		{strings.Repeat("[", 100_000), "["},
	} {
		if glob.Compile(c.pattern).Match(c.name) {
			t.Errorf("%.20q... matches %.20q...", c.pattern, c.name)
		}
	}
	if p := strings.Repeat("*a", 10_000); !glob.Compile(p).Match(strings.Repeat("a", 10_000)) {
		t.Error("as many stars as letters do not match these letters")
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	p := glob.Compile("*www-[a-z]*/é?*x")
	name := strings.Repeat("www-prod/éé", 20) + "x"
	if !p.Match(name) {
		t.Fatal("no match")
	}
	if n := testing.AllocsPerRun(100, func() { p.Match(name) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// oracle returns a function that matches with SQLite.
func oracle(t testing.TB) func(t testing.TB, pattern, name string) bool {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	stmt, err := db.PrepareContext(t.Context(), "SELECT ? GLOB ?")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stmt.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(t testing.TB, pattern, name string) bool {
		t.Helper()
		var yes bool
		if err := stmt.QueryRowContext(t.Context(), name, pattern).Scan(&yes); err != nil {
			t.Fatalf("%q GLOB %q: %v", name, pattern, err)
		}
		return yes
	}
}

// compare fails the test unless a pattern matches as in SQLite and its properties agree with the
// names that it matches.
func compare(t testing.TB, asks func(t testing.TB, pattern, name string) bool, pattern, name string) (matches bool) {
	t.Helper()
	p := glob.Compile(pattern)
	got := p.Match(name)
	if want := asks(t, pattern, name); got != want {
		t.Errorf("%q GLOB %q: %v, but SQLite says %v", name, pattern, got, want)
	}
	if got && p.Never() {
		t.Errorf("%q never matches, but does %q", pattern, name)
	}
	if !utf8.ValidString(name) || strings.Contains(name, "\x00") {
		return got
	}
	if got && !strings.HasPrefix(name, p.Prefix()) {
		t.Errorf("%q matches %q, which does not begin with %q", pattern, name, p.Prefix())
	}
	if only, ok := p.Exact(); ok && got != (name == only) {
		t.Errorf("%q is %q alone, and for %q the answer is %v", pattern, only, name, got)
	}
	return got
}

// pieces holds the parts of random patterns and names. The list is short so that they often match,
// and it includes all special characters.
var pieces = strings.Split("a|a|b|c|z|*|*|?|?|[|]|[a-c]|[^b]|[^|-|^|!|/|é|€|😀|[é-€]|A|\x80|\xc2|\xff|\xe0\x82\x80|\xed\xa0\x80|\ufffe|\ufffd|\u0080|\xbf\xbf|\x00", "|")

func draw(r *rand.Rand, most, of int) string {
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteString(pieces[r.IntN(of)])
	}
	return b.String()
}

// drawSet returns a random set, which is closed in most cases.
func drawSet(r *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('[')
	for range r.IntN(7) {
		b.WriteString([]string{"a", "b", "c", "d", "-", "-", "-", "^", "]", "é", "\x80"}[r.IntN(11)])
	}
	if r.IntN(10) > 0 {
		b.WriteByte(']')
	}
	return b.String()
}

func TestAgainstSQLite(t *testing.T) {
	t.Parallel()
	asks := oracle(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	matches := 0
	for range 500 {
		set := drawSet(r)
		for _, name := range []string{"a", "b", "c", "d", "-", "^", "]", "é", "\u0080"} {
			compare(t, asks, set, name)
		}
	}
	for range 3000 {
		of := 5 + r.IntN(len(pieces)-4) // from few to all of the pieces
		pattern := draw(r, 8, of)
		for range 3 {
			name := draw(r, 6, of)
			if r.IntN(2) == 0 { // a name that resembles the pattern
				name = strings.NewReplacer("*", draw(r, 2, 5), "?", "b", "[a-c]", "b", "[^b]", "a", "[", "", "]", "").Replace(pattern)
			}
			if compare(t, asks, pattern, name) {
				matches++
			}
		}
	}
	if matches < 500 {
		t.Errorf("only %d of 9000 pairs match: too few to tell much", matches)
	}
}

func FuzzAgainstSQLite(f *testing.F) {
	for _, s := range [][2]string{
		{"*a*a*a*a*b", "aaaaaaaa"}, {"[a-", "a"}, {"[]-a]", "]"}, {"[z-a]", "z"}, {"www-*/Send[A-Z]*?", "www-prod/SendEmail"}, {"*\x80[^é]", "a\xc2\x80b"},
	} {
		f.Add(s[0], s[1])
	}
	asks := oracle(f)
	f.Fuzz(func(t *testing.T, pattern, name string) {
		// SQLite may try all lengths of a star for each position of the previous star
		if len(pattern) > 100 || len(name) > 100 {
			return
		}
		if strings.Count(pattern, "*") > 4 {
			glob.Compile(pattern).Match(name)
			return
		}
		compare(t, asks, pattern, name)
	})
}

func BenchmarkMatch(b *testing.B) {
	for _, c := range []struct{ name, pattern, text string }{
		{"prefix", "www-prod/*", "www-prod/SendEmailToCustomer"},
		{"suffix", "*Customer", "www-prod/SendEmailToCustomer"},
		{"hard", strings.Repeat("*a*a*a*a*b", 25), strings.Repeat("a", 255)},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := glob.Compile(c.pattern)
			for b.Loop() {
				p.Match(c.text)
			}
		})
	}
}
