package resultstoretest

import (
	"bytes"
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

// swapCases returns the cases of the sentences of [resultstore.Swapper].
func swapCases() []testCase {
	return []testCase{
		{
			Area: "swap", Name: "the interface is there when it is promised",
			Explain: "A store that implements Swapper also promises it, so that it is tested.",
			Run: func(w *world) {
				s := w.Open()
				if _, got := capability.As[resultstore.Swapper](s); got != w.h.Promises.Swap {
					w.Errorf("the store is a Swapper: %v, promised is %v", got, w.h.Promises.Swap)
				}
			},
		},
		{
			Area: "swap", Name: "a value is replaced by a caller that knows it",
			Explain: "Swap stores the next value if the key has the old one or the next one, in any process. Any other caller gets the value that stayed. A repeated Swap succeeds, because its first answer may be lost.",
			Needs:   []need{needsSwap},
			Run: func(w *world) {
				a, b := w.swapper(), w.swapper()
				key := w.key()
				w.value(a, key, "")
				w.swap(a, key, "one", "two", "")
				w.value(b, key, "")
				w.swap(a, key, "", "one", "one")
				w.value(b, key, "one")
				w.swap(b, key, "", "other", "one")
				w.swap(b, key, "other", "two", "one")
				w.swap(b, key, "one", "two", "two")
				w.swap(b, key, "one", "two", "two")
				w.swap(a, key, "", "two", "two")
				w.swap(a, key, "one", "three", "two")
				w.value(a, key, "two")
				w.value(b, w.key(), "")
			},
		},
		{
			Area: "swap", Name: "many at a time",
			Explain: "Swap is one atomic step: many concurrent callers that repeat it with the value they were told lose no change.",
			Needs:   []need{needsSwap},
			Run: func(w *world) {
				const callers, changes = 8, 10
				stores := []resultstore.Swapper{w.swapper(), w.swapper()}
				key := w.key()
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						ctx, cancel := w.Ctx()
						defer cancel()
						var known []byte
						for n := 0; n < changes; {
							next := append(bytes.Clone(known), fmt.Sprintf("%d.%d ", i, n)...)
							now, err := stores[i%2].Swap(ctx, key, known, next, time.Hour)
							if w.Clean(err) != nil {
								w.Errorf("Swap: %v", err)
								return
							}
							if bytes.Equal(now, next) {
								n++
							}
							known = now
						}
					})
				}
				wg.Wait()
				ctx, cancel := w.Ctx()
				defer cancel()
				value, err := stores[0].Value(ctx, key)
				w.Must(err, "Value")
				last := make(map[string]int)
				for change := range strings.FieldsSeq(string(value)) {
					caller, n, _ := strings.Cut(change, ".")
					if n != fmt.Sprint(last[caller]) {
						w.Fatalf("the value %s has change %s after %d changes of its caller", value, change, last[caller])
					}
					last[caller]++
				}
				for i := range callers {
					if n := last[fmt.Sprint(i)]; n != changes {
						w.Errorf("the value has %d changes of caller %d, want %d: %s", n, i, changes, value)
					}
				}
			},
		},
		{
			Area: "swap", Name: "a value ends",
			Explain: "A value stays for the ttl of the last Swap and no longer. After that the key is free, and a Swap with the old value stores nothing.",
			Needs:   []need{needsSwap, needsTTL},
			Run: func(w *world) {
				a, b := w.swapper(), w.swapper()
				ttl := w.h.Promises.TTL
				stays, ends := w.key(), w.key()
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := a.Swap(ctx, stays, nil, []byte("one"), ttl)
				w.Must(err, "Swap")
				w.swap(b, stays, "one", "two", "two") // for an hour
				before := time.Now()
				_, err = a.Swap(ctx, ends, nil, []byte("one"), ttl)
				w.Must(err, "Swap")
				w.Until("the value ends", func() bool {
					value, err := b.Value(ctx, ends)
					return w.Clean(err) == nil && value == nil
				})
				if kept := time.Since(before); kept < ttl {
					w.Errorf("the value was gone after %v, its ttl is %v", kept, ttl)
				}
				w.swap(b, ends, "one", "two", "")
				w.swap(b, ends, "", "three", "three")
				w.swap(b, stays, "two", "three", "three")
			},
		},
		{
			Area: "swap", Name: "any bytes and any key",
			Explain: "A value is any bytes up to MaxSwapBytes. A key is any text, and each text is a different key, apart from the keys of claims.",
			Needs:   []need{needsSwap, needsClaim},
			Run: func(w *world) {
				s := w.Open()
				v, c := suite.Offer[resultstore.Swapper](w, s), suite.Offer[resultstore.Claimer](w, s)
				large := strings.Repeat("\x00\xff'\"\r\n", resultstore.MaxSwapBytes/6)
				key := w.key()
				w.swap(v, key, "", large, large)
				w.value(v, key, large)
				w.swap(v, key, large, "\x00", "\x00")
				w.swap(v, key, "\x00", large[1:], large[1:])
				w.swap(v, key, large, "x", large[1:])
				w.claim(c, key, "one", time.Hour, "one")
				for _, text := range []string{" ", "}", "{a}", "a\x00", "\xff", "ä", "a.*", "%41", `'"`, `\x41`} {
					w.swap(v, key+text, "", "value of "+text, "value of "+text)
				}
				for _, text := range []string{" ", "}", "{a}", "a\x00", "\xff", "ä", "a.*", "%41", `'"`, `\x41`} {
					w.value(v, key+text, "value of "+text)
				}
				w.value(v, key, large[1:])
				w.claim(c, key, "two", time.Hour, "one")
			},
		},
		{
			Area: "swap", Name: "what is no value is refused",
			Explain: "A key, a value or a ttl out of range returns ErrMalformed or ErrTooLarge and changes nothing.",
			Needs:   []need{needsSwap},
			Run: func(w *world) {
				s := w.swapper()
				key := w.key()
				w.swap(s, key, "", "one", "one")
				ctx, cancel := w.Ctx()
				defer cancel()
				one, long := []byte("one"), make([]byte, resultstore.MaxSwapBytes+1)
				for _, bad := range []struct {
					key       string
					old, next []byte
					ttl       time.Duration
					want      error
				}{
					{"", one, one, 1, resultstore.ErrMalformed},
					{strings.Repeat("k", resultstore.MaxClaimText+1), one, one, 1, resultstore.ErrMalformed},
					{key, one, nil, 1, resultstore.ErrMalformed},
					{key, one, one, 0, resultstore.ErrMalformed},
					{key, one, one, resultstore.MaxClaimTTL + 1, resultstore.ErrMalformed},
					{key, one, long, 1, resultstore.ErrTooLarge},
					{key, long, one, 1, resultstore.ErrTooLarge},
				} {
					_, err := s.Swap(ctx, bad.key, bad.old, bad.next, bad.ttl)
					w.WantIs(err, bad.want, "Swap of %d bytes to %d, key of %d, %v", len(bad.old), len(bad.next), len(bad.key), bad.ttl)
				}
				_, err := s.Value(ctx, "")
				w.WantIs(err, resultstore.ErrMalformed, "Value of the empty key")
				w.value(s, key, "one")
			},
		},
		{
			Area: "swap", Name: "a value survives a restart",
			Explain: "With Durable a value is stored as safely as a record.",
			Needs:   []need{needsSwap, needsDurable, needsRestart},
			Run: func(w *world) {
				s := w.swapper()
				key := w.key()
				w.swap(s, key, "", "one", "one")
				w.h.Restart(w)
				w.value(w.swapper(), key, "one")
			},
		},
		{
			Area: "swap", Name: "the server is away",
			Explain: "A step that is impossible until ctx ends returns ErrUnavailable. A closed store returns ErrClosed.",
			Needs:   []need{needsSwap, needsDown},
			Run: func(w *world) {
				s := w.swapper()
				key := w.key()
				w.swap(s, key, "", "one", "one")
				up := w.h.Down(w)
				ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
				defer cancel()
				_, err := s.Swap(ctx, key, []byte("one"), []byte("two"), time.Hour)
				w.WantIs(w.Clean(err), resultstore.ErrUnavailable, "Swap while the server is away")
				up()
			},
		},
		{
			Area: "swap", Name: "nothing after Close",
			Explain: "A closed store returns ErrClosed.",
			Needs:   []need{needsSwap},
			Run: func(w *world) {
				s := w.Open()
				v := suite.Offer[resultstore.Swapper](w, s)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(s.Close(ctx), "Close")
				_, err := v.Value(ctx, "key")
				w.WantIs(err, resultstore.ErrClosed, "Value after Close")
				_, err = v.Swap(ctx, "key", nil, []byte("one"), time.Hour)
				w.WantIs(err, resultstore.ErrClosed, "Swap after Close")
			},
		},
	}
}

// needsSwap returns the reason to skip a case, "" if the adapter promises Swap.
func needsSwap(h *Harness) string {
	if h.Promises.Swap {
		return ""
	}
	return "the adapter does not promise Swap"
}

// swapper opens a store as a Swapper.
func (w *world) swapper() resultstore.Swapper {
	w.Helper()
	return suite.Offer[resultstore.Swapper](w, w.Open())
}

// swap calls Swap and fails the case unless it returns the value want. "": the key is free.
func (w *world) swap(s resultstore.Swapper, key, old, next, want string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	now, err := s.Swap(ctx, key, []byte(old), []byte(next), time.Hour)
	w.Must(err, "Swap of %q from %q to %q", utf.Cut(key, 40), utf.Cut(old, 40), utf.Cut(next, 40))
	if string(now) != want || want == "" && now != nil {
		w.Errorf("Swap of %q from %q to %q returned %q, want %q", utf.Cut(key, 40), utf.Cut(old, 40), utf.Cut(next, 40), utf.Cut(string(now), 40), utf.Cut(want, 40))
	}
}

// value calls Value and fails the case unless it returns the value want. "": the key is free.
func (w *world) value(s resultstore.Swapper, key, want string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	now, err := s.Value(ctx, key)
	w.Must(err, "Value of %q", utf.Cut(key, 40))
	if string(now) != want || want == "" && now != nil {
		w.Errorf("the value of %q is %q, want %q", utf.Cut(key, 40), utf.Cut(string(now), 40), utf.Cut(want, 40))
	}
}
