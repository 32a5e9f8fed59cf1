package resultstoretest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
)

// claimCases returns the cases of the sentences of [resultstore.Claimer].
func claimCases() []testCase {
	return []testCase{
		{
			Area: "claim", Name: "the interface is there when it is promised",
			Explain: "A store that implements Claimer also promises it, so that it is tested.",
			Run: func(w *world) {
				s := w.Open()
				if _, got := capability.As[resultstore.Claimer](s); got != w.h.Promises.Claim {
					w.Errorf("the store is a Claimer: %v, promised is %v", got, w.h.Promises.Claim)
				}
			},
		},
		{
			Area: "claim", Name: "one holder has a key",
			Explain: "Claim grants a free key to the first holder in any process and returns that holder to every other. A repeated Claim of the same holder is granted, because its first answer may be lost.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				a, b := w.claimer(), w.claimer()
				key := w.key()
				w.claim(a, key, "one", time.Hour, "one")
				w.claim(b, key, "two", time.Hour, "one")
				w.claim(b, key, "one", time.Hour, "one")
				w.claim(a, w.key(), "two", time.Hour, "two")
			},
		},
		{
			Area: "claim", Name: "many at a time",
			Explain: "Claim is one atomic step: of many concurrent holders exactly one wins, and all calls return the same winner.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				const n = 32
				stores := []resultstore.Claimer{w.claimer(), w.claimer()}
				for range 3 {
					key := w.key()
					winners := make([]string, n)
					var wg sync.WaitGroup
					for i := range n {
						wg.Go(func() {
							ctx, cancel := w.Ctx()
							defer cancel()
							var err error
							if winners[i], err = stores[i%len(stores)].Claim(ctx, key, fmt.Sprint(i), time.Hour); w.Clean(err) != nil {
								w.Errorf("Claim: %v", err)
							}
						})
					}
					wg.Wait()
					for i, winner := range winners {
						if winner == "" || winner != winners[0] {
							w.Errorf("holder %d was told that %q has the key, holder 0 that %q has it", i, winner, winners[0])
						}
					}
				}
			},
		},
		{
			Area: "claim", Name: "a released key",
			Explain: "Release ends the claim of its holder at once. It changes nothing if another holder has the claim or the key is free.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				a, b := w.claimer(), w.claimer()
				key := w.key()
				w.release(a, key, "nobody")
				w.claim(a, key, "one", time.Hour, "one")
				w.release(b, key, "two")
				w.claim(b, key, "two", time.Hour, "one")
				w.release(b, key, "one")
				w.claim(a, key, "two", time.Hour, "two")
				w.release(a, key, "one") // from an earlier claim
				w.claim(b, key, "three", time.Hour, "two")
				w.release(a, key, "two")
				w.release(a, key, "two")
				w.claim(b, key, "one", time.Hour, "one")
			},
		},
		{
			Area: "claim", Name: "a claim is extended by its holder alone",
			Explain: "Extend by another holder, or of a free key, returns ErrStale and changes nothing: a holder that was too slow must learn of it.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				a, b := w.claimer(), w.claimer()
				key := w.key()
				w.stale(a.Extend, key, "one")
				w.claim(a, key, "one", time.Hour, "one")
				w.stale(b.Extend, key, "two")
				w.extend(b, key, "one", 2*time.Hour)
				w.claim(b, key, "two", time.Hour, "one")
				w.release(a, key, "one")
				w.stale(b.Extend, key, "one")
				w.claim(b, key, "two", time.Hour, "two")
				w.stale(a.Extend, key, "one")
			},
		},
		{
			Area: "claim", Name: "a claim is passed on",
			Explain: "Pass moves a claim from its holder to the next in one step. A repeated Pass changes only the time, because its first answer may be lost. From any other holder it returns ErrStale.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				a, b := w.claimer(), w.claimer()
				key := w.key()
				pass := func(s resultstore.Claimer, from, to string) func(context.Context, string, string, time.Duration) error {
					return func(ctx context.Context, key, _ string, ttl time.Duration) error {
						return s.Pass(ctx, key, from, to, ttl)
					}
				}
				w.stale(pass(a, "one", "two"), key, "one")
				w.claim(a, key, "one", time.Hour, "one")
				w.stale(pass(b, "two", "three"), key, "two")
				w.pass(b, key, "one", "two", time.Hour)
				w.pass(a, key, "one", "two", time.Hour)
				w.claim(a, key, "one", time.Hour, "two")
				w.stale(a.Extend, key, "one")
				w.stale(pass(a, "one", "three"), key, "one")
				w.extend(a, key, "two", time.Hour)
				w.release(b, key, "one")
				w.claim(b, key, "four", time.Hour, "two")
			},
		},
		{
			Area: "claim", Name: "one of many passes it on",
			Explain: "Pass is one atomic step: of many concurrent calls that pass one claim to different holders exactly one succeeds.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				const n = 16
				stores := []resultstore.Claimer{w.claimer(), w.claimer()}
				key := w.key()
				w.claim(stores[0], key, "first", time.Hour, "first")
				errs := make([]error, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						ctx, cancel := w.Ctx()
						defer cancel()
						errs[i] = w.Clean(stores[i%len(stores)].Pass(ctx, key, "first", fmt.Sprint("next ", i), time.Hour))
					})
				}
				wg.Wait()
				passed := -1
				for i, err := range errs {
					switch {
					case err != nil:
						w.WantIs(err, resultstore.ErrStale, "Pass to %d, of many at a time", i)
					case passed >= 0:
						w.Errorf("Pass to %d and to %d succeeded", passed, i)
					default:
						passed = i
					}
				}
				w.claim(stores[0], key, "late", time.Hour, fmt.Sprint("next ", passed))
			},
		},
		{
			Area: "claim", Name: "a claim ends",
			Explain: "A claim lasts for its ttl and no longer. A late Extend, Pass or Release of its holder has no effect, because another holder may have the key by then.",
			Needs:   []need{needsClaim, needsTTL},
			Run: func(w *world) {
				a, b := w.claimer(), w.claimer()
				ttl := w.h.Promises.TTL
				stays, extended, repeated, lost, short := w.key(), w.key(), w.key(), w.key(), w.key()
				w.claim(a, stays, "one", time.Hour, "one")
				w.claim(a, lost, "one", ttl, "one")
				w.claim(a, extended, "one", ttl, "one")
				w.extend(a, extended, "one", time.Hour)
				w.claim(a, short, "one", time.Hour, "one")
				w.extend(a, short, "one", ttl)
				before := time.Now()
				w.claim(a, repeated, "one", ttl, "one")
				w.claim(a, repeated, "one", time.Hour, "one") // does not change when the claim ends
				w.Until("the claim ends", func() bool {
					ctx, cancel := w.Ctx()
					defer cancel()
					winner, err := b.Claim(ctx, repeated, "two", time.Hour)
					return w.Clean(err) == nil && winner == "two"
				})
				if held := time.Since(before); held < ttl {
					w.Errorf("another holder got the key after %v, it was claimed for %v", held, ttl)
				}
				w.Until("the shortened claim ends", func() bool {
					ctx, cancel := w.Ctx()
					defer cancel()
					winner, err := b.Claim(ctx, short, "two", time.Hour)
					return w.Clean(err) == nil && winner == "two"
				})
				w.stale(b.Extend, lost, "one") // no other holder has claimed it since
				w.stale(b.Extend, repeated, "one")
				w.release(a, repeated, "one")
				w.claim(a, repeated, "three", time.Hour, "two")
				// b has seen a later claim end; the clock of a may be slightly behind
				w.claim(b, lost, "three", time.Hour, "three")
				w.claim(b, stays, "three", time.Hour, "one")
				w.claim(b, extended, "three", time.Hour, "one")
			},
		},
		{
			Area: "claim", Name: "any text is a key and a holder",
			Explain: "Users choose the keys: quotes, wildcards, braces, control characters, invalid UTF-8 and 512 bytes are allowed, and each text is a different key.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				a, b := w.claimer(), w.claimer()
				odd := []string{
					"a b", " a", "a ", "a.b", "a.*", "a.>", "{a}", "a}", "{", "a'b", `a"b`, `a\b`, "a%b", "$1", "a/b", "a\x00", "a\x00b",
					"\n", "\r\n", "ä", "a\u0308", "\xff", "\xff\xfe", "😀", "\ufeff", "A", "=41", "%41", `\x41`,
					strings.Repeat("k", resultstore.MaxClaimText), strings.Repeat("\x00", resultstore.MaxClaimText),
					strings.Repeat("😀", resultstore.MaxClaimText/4), strings.Repeat("\xff", resultstore.MaxClaimText),
				}
				key := func(text string) string { // the prefix replaces the start of a key of maximal length
					if p := w.h.Prefix; len(p)+len(text) > resultstore.MaxClaimText {
						return p + text[len(p):]
					}
					return w.h.Prefix + text
				}
				for _, text := range odd {
					w.claim(a, key(text), text, time.Hour, text)
				}
				for _, text := range odd {
					w.claim(b, key(text), "another", time.Hour, text)
					w.extend(b, key(text), text, time.Hour)
				}
				for _, text := range odd {
					w.release(b, key(text), text)
					w.claim(a, key(text), "next", time.Hour, "next")
				}
			},
		},
		{
			Area: "claim", Name: "what is no claim is refused",
			Explain: "A key or a holder that is empty or too long, and a ttl out of range, return ErrMalformed and change nothing.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				s := w.claimer()
				key, long := w.key(), strings.Repeat("k", resultstore.MaxClaimText+1)
				ctx, cancel := w.Ctx()
				defer cancel()
				refuse := func(what string, err error) {
					w.Helper()
					w.WantIs(err, resultstore.ErrMalformed, "%s", what)
				}
				for _, bad := range []struct {
					key, holder string
					ttl         time.Duration
				}{
					{"", "h", 1},
					{long, "h", 1},
					{key, "", 1},
					{key, long, 1},
					{key, "h", 0},
					{key, "h", -1},
					{key, "h", resultstore.MaxClaimTTL + 1},
				} {
					what := fmt.Sprintf("a key of %d bytes, a holder of %d, %v", len(bad.key), len(bad.holder), bad.ttl)
					_, err := s.Claim(ctx, bad.key, bad.holder, bad.ttl)
					refuse("Claim: "+what, err)
					refuse("Extend: "+what, s.Extend(ctx, bad.key, bad.holder, bad.ttl))
					refuse("Pass: "+what, s.Pass(ctx, bad.key, bad.holder, "next", bad.ttl))
					if bad.ttl == 1 {
						refuse("Pass to another: "+what, s.Pass(ctx, bad.key, "h", bad.holder, 0))
						refuse("Release: "+what, s.Release(ctx, bad.key, bad.holder))
					}
				}
				w.claim(s, key, "one", resultstore.MaxClaimTTL, "one")
				w.claim(s, key, "two", 1, "one")
			},
		},
		{
			Area: "claim", Name: "keys are apart from ids",
			Explain: "A key may have the text of the id of a task or a group: neither changes the other.",
			Needs:   []need{needsClaim, needsGather},
			Run: func(w *world) {
				s := w.Open()
				c, g := suite.Offer[resultstore.Claimer](w, s), suite.Offer[resultstore.Gatherer](w, s)
				id := w.id()
				w.claim(c, string(id), "one", time.Hour, "one")
				w.begin(g, id, "two", time.Hour, true)
				w.arrive(g, w.member(id, 0, 2), resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				r := w.succeeded("")
				r.ID = id
				w.save(s, r)
				w.claim(c, string(id), "three", time.Hour, "one")
				w.release(c, string(id), "one")
				w.begin(g, id, "three", time.Hour, false)
				w.wantLoad(s, r, "the record, after a claim of the same text was released")
			},
		},
		{
			Area: "claim", Name: "a lost connection loses no claim",
			Explain: "A granted claim remains after connections were lost, and a repeated Claim is granted.",
			Needs:   []need{needsClaim, needsSever},
			Run: func(w *world) {
				s := w.Open()
				c := suite.Offer[resultstore.Claimer](w, s)
				key := w.key()
				w.claim(c, key, "one", time.Hour, "one")
				w.h.Sever(w, s)
				w.Until("a Claim through a lost connection", func() bool {
					ctx, cancel := context.WithTimeout(context.Background(), w.Patience/4)
					defer cancel()
					winner, err := c.Claim(ctx, key, "two", time.Hour)
					if w.Clean(err) == nil && winner != "one" {
						w.Fatalf("%q has the key, want one", winner)
					}
					return err == nil
				})
			},
		},
		{
			Area: "claim", Name: "a claim survives a restart",
			Explain: "With Durable a claim is stored as safely as a record.",
			Needs:   []need{needsClaim, needsDurable, needsRestart},
			Run: func(w *world) {
				s := w.claimer()
				key := w.key()
				w.claim(s, key, "one", time.Hour, "one")
				w.h.Restart(w)
				w.claim(w.claimer(), key, "two", time.Hour, "one")
			},
		},
		{
			Area: "claim", Name: "the server is away",
			Explain: "A step that is impossible until ctx ends returns ErrUnavailable, so that no caller relies on a claim that it does not have.",
			Needs:   []need{needsClaim, needsDown},
			Run: func(w *world) {
				s := w.claimer()
				key := w.key()
				w.claim(s, key, "one", time.Hour, "one")
				up := w.h.Down(w)
				ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
				defer cancel()
				_, err := s.Claim(ctx, key, "one", time.Hour)
				for what, err := range map[string]error{
					"Claim": err, "Extend": s.Extend(ctx, key, "one", time.Hour),
					"Pass": s.Pass(ctx, key, "one", "two", time.Hour), "Release": s.Release(ctx, key, "one"),
				} {
					if w.Clean(err) == nil {
						w.Errorf("%s while the server is away is nil", what)
					}
				}
				w.WantIs(err, resultstore.ErrUnavailable, "Claim while the server is away")
				up()
			},
		},
		{
			Area: "claim", Name: "nothing after Close",
			Explain: "A closed store returns ErrClosed.",
			Needs:   []need{needsClaim},
			Run: func(w *world) {
				s := w.Open()
				c := suite.Offer[resultstore.Claimer](w, s)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(s.Close(ctx), "Close")
				_, err := c.Claim(ctx, "key", "one", time.Hour)
				w.WantIs(err, resultstore.ErrClosed, "Claim after Close")
				w.WantIs(c.Extend(ctx, "key", "one", time.Hour), resultstore.ErrClosed, "Extend after Close")
				w.WantIs(c.Pass(ctx, "key", "one", "two", time.Hour), resultstore.ErrClosed, "Pass after Close")
				w.WantIs(c.Release(ctx, "key", "one"), resultstore.ErrClosed, "Release after Close")
			},
		},
	}
}

// needsClaim returns the reason to skip a case, "" if the adapter promises Claim.
func needsClaim(h *Harness) string {
	if h.Promises.Claim {
		return ""
	}
	return "the adapter does not promise Claim"
}

// claimer opens a store as a Claimer.
func (w *world) claimer() resultstore.Claimer {
	w.Helper()
	return suite.Offer[resultstore.Claimer](w, w.Open())
}

// key returns a new key.
func (w *world) key() string { return "key of " + string(w.id()) }

// claim calls Claim and fails the case unless it returns the holder want.
func (w *world) claim(s resultstore.Claimer, key, holder string, ttl time.Duration, want string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	winner, err := s.Claim(ctx, key, holder, ttl)
	w.Must(err, "Claim of %q by %q", utf.Cut(key, 40), utf.Cut(holder, 40))
	if winner != want {
		w.Errorf("Claim of %q by %q: %q has it, want %q", utf.Cut(key, 40), utf.Cut(holder, 40), winner, want)
	}
}

// extend calls Extend and fails the case on an error.
func (w *world) extend(s resultstore.Claimer, key, holder string, ttl time.Duration) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Extend(ctx, key, holder, ttl), "Extend of %q by %q", utf.Cut(key, 40), utf.Cut(holder, 40))
}

// pass calls Pass and fails the case on an error.
func (w *world) pass(s resultstore.Claimer, key, holder, next string, ttl time.Duration) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Pass(ctx, key, holder, next, ttl), "Pass of %q by %q", utf.Cut(key, 40), utf.Cut(holder, 40))
}

// release calls Release and fails the case on an error.
func (w *world) release(s resultstore.Claimer, key, holder string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Release(ctx, key, holder), "Release of %q by %q", utf.Cut(key, 40), utf.Cut(holder, 40))
}

// stale expects ErrStale from a step of a holder that does not have the claim.
func (w *world) stale(step func(ctx context.Context, key, holder string, ttl time.Duration) error, key, holder string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.WantIs(step(ctx, key, holder, time.Hour), resultstore.ErrStale, "a step of %q, which does not have the key", holder)
}
