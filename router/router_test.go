package router_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

func route(t testing.TB, r router.Router, e task.Envelope) string {
	t.Helper()
	q, err := r.Route(context.Background(), &e)
	if err != nil {
		t.Fatalf("Route of %q: %v", e.Name, err)
	}
	return q
}

func TestStatic(t *testing.T) {
	for s, want := range map[router.Static]string{"": router.DefaultQueue, "mail": "mail"} {
		if got := route(t, s, task.Envelope{Name: "x"}); got != want {
			t.Errorf("Static(%q) routes to %q, want %q", s, got, want)
		}
		if diff := cmp.Diff([]string{want}, s.Queues()); diff != "" {
			t.Errorf("Queues of Static(%q) (-want +got):\n%s", s, diff)
		}
	}
}

// Promises: S43.
func TestFunc(t *testing.T) {
	errNo := errors.New("no")
	f := router.Func{
		Fn: func(_ context.Context, e *task.Envelope) (string, error) {
			if e.Name == "bad" {
				return "", errNo
			}
			return "q-" + e.Name, nil
		},
		List: []string{"q-b", "q-a"},
	}
	if got := route(t, f, task.Envelope{Name: "a"}); got != "q-a" {
		t.Errorf("routes to %q, want what Fn returned", got)
	}
	if _, err := f.Route(t.Context(), &task.Envelope{Name: "bad"}); !errors.Is(err, errNo) {
		t.Errorf("the error is %v, want Fn's", err)
	}
	qs := f.Queues()
	if diff := cmp.Diff(f.List, qs); diff != "" {
		t.Errorf("Queues (-want +got):\n%s", diff)
	}
	qs[0] = "changed"
	if f.List[0] != "q-b" {
		t.Error("the caller of Queues changed the router's list")
	}
	if got := route(t, router.Func{}, task.Envelope{}); got != router.DefaultQueue {
		t.Errorf("the zero Func routes to %q", got)
	}
	if diff := cmp.Diff([]string{router.DefaultQueue}, router.Func{}.Queues()); diff != "" {
		t.Errorf("Queues of the zero Func (-want +got):\n%s", diff)
	}
}

// one returns a function that reports whether a name matches pattern.
func one(t testing.TB, pattern string) func(name string) bool {
	t.Helper()
	tab, err := router.NewTable(router.TableConfig{Routes: []router.Route{{Pattern: pattern, Queue: "hit"}}, Default: "miss"})
	if err != nil {
		t.Fatalf("pattern %q: %v", pattern, err)
	}
	return func(name string) bool { return route(t, tab, task.Envelope{Name: name}) == "hit" }
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct{ pattern, hits, misses string }{
		{"email.send", "email.send", "email.sen email.sendx xemail.send emailxsend Email.send"},
		{"email.*", "email.send email. email.s-1_X", "email email.a.b xemail.a emails.a"},
		{"*", "a email-send a_b", "a.b ."},
		{"#", "a a.b a.b.c x. ", ""},
		{"**", "a a.b a.b.c", ""},
		{"email.#", "email.a email.a.b email.", "email xemail.a"},
		{"email.**", "email.a email.a.b", "email"},
		{"*.send", "email.send .send", "a.b.send send email.sendx"},
		{"#.send", "email.send a.b.send", "send email.sendx"},
		{"#send", "send email.send resend", "sent send.x"},
		{"a.*.c", "a.b.c a..c", "a.c a.b.b.c"},
		{"a.#.c", "a.b.c a.b.b.c a..c", "a.c a.b.c.d"},
		{"*a*", "a ba ab bab bb-a-b", "b b.a a.b"},
		{"***", "a a.b", ""},
		{"a#b*c", "abc axbc a.x.bxc abbc", "a.b.c ab"},
		{"v1-*", "v1-x v1-", "v1 v1-x.y"},
	} {
		match := one(t, c.pattern)
		for _, name := range strings.Fields(c.hits) {
			if !match(name) {
				t.Errorf("%q does not match %q", c.pattern, name)
			}
		}
		for _, name := range strings.Fields(c.misses) {
			if match(name) {
				t.Errorf("%q matches %q", c.pattern, name)
			}
		}
	}
	if !one(t, "#")("") {
		t.Error("# does not match the empty name of a raw message")
	}
	if one(t, "#")(strings.Repeat("a", 129)) {
		t.Error("a name that is too long for a name matches")
	}
	if !one(t, "#")(strings.Repeat("a", 128)) {
		t.Error("# does not match the longest name")
	}
}

func TestPatternsAgreeWithRegularExpressions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab.*#]{1,10}`).Draw(t, "pattern")
		expr := strings.NewReplacer("**", ".*", "#", ".*", "*", "[^.]*", ".", `\.`).Replace(pattern)
		re := regexp.MustCompile(`\A(?:` + expr + `)\z`)
		tab, err := router.NewTable(router.TableConfig{Routes: []router.Route{{Pattern: pattern, Queue: "hit"}}})
		if err != nil {
			t.Fatalf("pattern %q: %v", pattern, err)
		}
		for range 10 {
			name := rapid.StringMatching(`[ab.]{0,12}`).Draw(t, "name")
			q, err := tab.Route(context.Background(), &task.Envelope{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			if want := re.MatchString(name); want != (q == "hit") {
				t.Fatalf("%q matches %q: %v, as the expression %s it would be %v", pattern, name, q == "hit", re, want)
			}
		}
	})
}

// Promises: S43.
func TestTableFirstMatchWins(t *testing.T) {
	tab, err := router.NewTable(router.TableConfig{
		Routes: []router.Route{
			{Pattern: "email.urgent", Queue: "now"},
			{Pattern: "email.*", Queue: "mail"},
			{Pattern: "email.#", Queue: "never-by-one-token"},
			{Pattern: "*.nightly", Queue: "slow"},
			{Pattern: "report.#", Queue: "slow"},
		},
		Default: "rest",
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"email.urgent": "now", "email.send": "mail", "email.a.b": "never-by-one-token", "email.nightly": "mail",
		"db.nightly": "slow", "report.a.b": "slow", "else": "rest", "": "rest",
	} {
		if got := route(t, tab, task.Envelope{Name: name}); got != want {
			t.Errorf("%q goes to %q, want %q", name, got, want)
		}
	}
	want := []string{"now", "mail", "never-by-one-token", "slow", "rest"}
	for range 2 {
		qs := tab.Queues()
		if diff := cmp.Diff(want, qs); diff != "" {
			t.Errorf("Queues (-want +got):\n%s", diff)
		}
		clear(qs) // the caller may change the list
	}
}

// Promises: S44.
func TestTableDefaults(t *testing.T) {
	tab, err := router.NewTable(router.TableConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if got := route(t, tab, task.Envelope{Name: "x"}); got != router.DefaultQueue {
		t.Errorf("the zero table routes to %q", got)
	}
	tab, err = router.NewTable(router.TableConfig{Routes: []router.Route{{Pattern: "a", Queue: "low"}, {Pattern: "b", Queue: "high"}}, Default: "low"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"low", "high"}, tab.Queues()); diff != "" {
		t.Errorf("a queue named twice is listed where it is named first (-want +got):\n%s", diff)
	}
}

func TestStrictTable(t *testing.T) {
	tab, err := router.NewTable(router.TableConfig{Routes: []router.Route{{Pattern: "a.*", Queue: "a"}}, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Route(t.Context(), &task.Envelope{Name: "b"}); !errors.Is(err, router.ErrNoRoute) {
		t.Errorf("an unknown task gives %v, want ErrNoRoute", err)
	}
	if diff := cmp.Diff([]string{"a"}, tab.Queues()); diff != "" {
		t.Errorf("Queues (-want +got):\n%s", diff)
	}
}

func TestTableRefuses(t *testing.T) {
	for name, c := range map[string]router.TableConfig{
		"no pattern":      {Routes: []router.Route{{Queue: "q"}}},
		"bad pattern":     {Routes: []router.Route{{Pattern: "a b", Queue: "q"}}},
		"regexp":          {Routes: []router.Route{{Pattern: "a[bc]", Queue: "q"}}},
		"long pattern":    {Routes: []router.Route{{Pattern: strings.Repeat("a*", 200), Queue: "q"}}},
		"no queue":        {Routes: []router.Route{{Pattern: "a"}}},
		"bad queue":       {Routes: []router.Route{{Pattern: "a", Queue: "-q"}}},
		"bad default":     {Default: "ä"},
		"strict default":  {Routes: []router.Route{{Pattern: "a", Queue: "q"}}, Strict: true, Default: "q"},
		"strict and bare": {Strict: true},
	} {
		if tab, err := router.NewTable(c); !errors.Is(err, router.ErrBadConfig) || tab != nil {
			t.Errorf("%s: %v, %v; want ErrBadConfig", name, tab, err)
		}
	}
	_, err := router.NewTable(router.TableConfig{Routes: []router.Route{{Pattern: "?", Queue: "?"}, {Pattern: "", Queue: "q"}}})
	for _, part := range []string{"route 0", "queue of route 0", "route 1"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not name all problems: %q is missing", err, part)
		}
	}
	if !errors.Is(err, task.ErrBadName) {
		t.Errorf("the error %q of a bad queue is not ErrBadName", err)
	}
}

func hash(t testing.TB, c router.HashConfig) *router.Hash {
	t.Helper()
	h, err := router.NewHash(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func shards(n int) []string {
	qs := make([]string, n)
	for i := range qs {
		qs[i] = fmt.Sprintf("shard-%d", i)
	}
	return qs
}

// TestHashIsTheSameForEver shows that the choices do not change, since several processes and
// versions must agree on them.
func TestHashIsTheSameForEver(t *testing.T) {
	h := hash(t, router.HashConfig{Queues: shards(8), Header: "tenant"})
	got := map[string]string{}
	for _, tenant := range []string{"a", "b", "acme", "ä", strings.Repeat("x", 300)} {
		got[tenant] = route(t, h, task.Envelope{ID: "1", Headers: map[string]string{"tenant": tenant}})
	}
	want := map[string]string{"a": "shard-1", "b": "shard-6", "acme": "shard-7", "ä": "shard-3", strings.Repeat("x", 300): "shard-3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the choice of queues changed; processes of two versions would not agree (-want +got):\n%s", diff)
	}
}

func TestHashSpreadsEvenly(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 16} {
		h := hash(t, router.HashConfig{Queues: shards(n)})
		counts := map[string]int{}
		const tasks = 40_000
		for i := range tasks {
			counts[route(t, h, task.Envelope{ID: task.ID(fmt.Sprintf("task-%d", i))})]++
		}
		for q, c := range counts {
			if share := float64(c) * float64(n) / tasks; share < 0.9 || share > 1.1 {
				t.Errorf("%d queues: %s has %.2f of its fair share", n, q, share)
			}
		}
		if len(counts) != n {
			t.Errorf("%d of %d queues are used", len(counts), n)
		}
	}
}

func TestHashMovesOnlyTheKeysOfTheNewQueue(t *testing.T) {
	before, after := hash(t, router.HashConfig{Queues: shards(7)}), hash(t, router.HashConfig{Queues: shards(8)})
	moved := 0
	const tasks = 20_000
	for i := range tasks {
		e := task.Envelope{ID: task.ID(fmt.Sprint(i))}
		a, b := route(t, before, e), route(t, after, e)
		if a == b {
			continue
		}
		if moved++; b != "shard-7" {
			t.Fatalf("key %d moved from %s to %s, neither of them new", i, a, b)
		}
	}
	if share := float64(moved) * 8 / tasks; share < 0.9 || share > 1.1 {
		t.Errorf("%d of %d keys moved to the eighth queue", moved, tasks)
	}
}

func TestHashOrderOfQueuesDoesNotMatter(t *testing.T) {
	qs := shards(5)
	a := hash(t, router.HashConfig{Queues: qs})
	slices.Reverse(qs)
	b := hash(t, router.HashConfig{Queues: qs})
	for i := range 1000 {
		e := task.Envelope{ID: task.ID(fmt.Sprint(i))}
		if route(t, a, e) != route(t, b, e) {
			t.Fatalf("key %d goes to another queue when the list is turned round", i)
		}
	}
	if diff := cmp.Diff(qs, b.Queues()); diff != "" {
		t.Errorf("Queues are not in the configured order (-want +got):\n%s", diff)
	}
}

func TestHashKeys(t *testing.T) {
	byHeader := hash(t, router.HashConfig{Queues: shards(16), Header: "tenant"})
	byName := hash(t, router.HashConfig{Queues: shards(16), Key: func(e *task.Envelope) string { return e.Name }})
	byID := hash(t, router.HashConfig{Queues: shards(16)})
	tenants, names, missing := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range 200 {
		e := task.Envelope{ID: task.ID(fmt.Sprint(i)), Name: "same", Headers: map[string]string{"tenant": "acme"}}
		tenants[route(t, byHeader, e)] = true
		names[route(t, byName, e)] = true
		e.Headers = nil
		q := route(t, byHeader, e)
		missing[q] = true
		if want := route(t, byID, e); q != want {
			t.Fatalf("a task without the header goes to %s, by its ID that is %s", q, want)
		}
	}
	if len(tenants) != 1 || len(names) != 1 {
		t.Errorf("tasks of one key went to %v and %v, want one queue each", slices.Collect(maps.Keys(tenants)), slices.Collect(maps.Keys(names)))
	}
	if len(missing) != 16 {
		t.Errorf("200 tasks without the header went to %d queues, want all 16", len(missing))
	}
}

func TestHashRefuses(t *testing.T) {
	for name, c := range map[string]router.HashConfig{
		"no queue":    {},
		"bad queue":   {Queues: []string{"a", "b c"}},
		"queue twice": {Queues: []string{"a", "b", "a"}},
		"two keys":    {Queues: []string{"a"}, Header: "x", Key: func(*task.Envelope) string { return "" }},
	} {
		if h, err := router.NewHash(c); !errors.Is(err, router.ErrBadConfig) || h != nil {
			t.Errorf("%s: %v, %v; want ErrBadConfig", name, h, err)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	tab, err := router.NewTable(router.TableConfig{Routes: []router.Route{
		{Pattern: "email.*", Queue: "mail"}, {Pattern: "report.#", Queue: "slow"}, {Pattern: "*.nightly", Queue: "slow"},
	}})
	if err != nil {
		b.Fatal(err)
	}
	e := task.Envelope{ID: "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee", Name: "billing.invoice.create"}
	for name, r := range map[string]router.Router{"table": tab, "hash": hash(b, router.HashConfig{Queues: shards(8)})} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Route(context.Background(), &e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
