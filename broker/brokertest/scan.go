package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// needsBounds is the need for Harness.Bounded.
func needsBounds(h *Harness) string {
	return suite.Unless(h.Bounded != nil, "the harness has no Bounded")
}

// scanCases returns the cases of PutDead, ScanDead and the limits of dead letters.
func scanCases() []testCase {
	return []testCase{
		{
			Area: "dead letters", Name: "PutDead", Needs: []need{needsDeadLetters},
			Explain: "PutDead adds a dead letter of a message that is in no queue, byte for byte with its texts, also to a queue that was never used. d.Queue is ignored.",
			Run: func(w *world) {
				b := w.Open()
				q := w.h.Prefix + "never-used"
				want := fullMessage()
				want.Body = []byte{0, 0xff, '\n', 0}
				at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
				put := *want
				w.put(b, q, broker.Dead{Message: &put, Queue: "other", Reason: "why ☠", Stack: "main.go:7\n\tmain", Attempts: 3, At: at})
				d := w.listDead(w.Open(), q, 10, 1)[0]
				if diff := diffMessage(want, d.Message); diff != "" {
					w.Errorf("the dead letter is not what was put (-put +dead):\n%s", diff)
				}
				w.wantNotes(d, broker.Dead{Queue: q, Reason: "why ☠", Stack: "main.go:7\n\tmain", Attempts: 3, At: at})
			},
		},
		{
			Area: "dead letters", Name: "what is said of a buried message", Needs: []need{needsDeadLetters},
			Explain: "DeadLetter stores Reason, Stack, Attempts and At as PutDead does; it ignores Message and Queue of its argument.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "notes")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				ctx, cancel := w.Ctx()
				defer cancel()
				notes := broker.Dead{Reason: "boom", Stack: "stack", Attempts: 25, At: time.Now().Add(-time.Hour).Truncate(time.Millisecond)}
				given := notes
				given.Message, given.Queue = msg("b"), "other"
				w.Must(d.DeadLetter(ctx, given), "DeadLetter")
				letter := w.listDead(b, q, 10, 1)[0]
				if letter.Message.ID != "a" {
					w.Errorf("the dead letter is %s", name(letter.Message))
				}
				notes.Queue = q
				w.wantNotes(letter, notes)
			},
		},
		{
			Area: "dead letters", Name: "what nobody could read", Needs: []need{needsDeadLetters},
			Explain: "A letter that is Unreadable is shown, removed and counted with the others, wherever the adapter stores it.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "unreadable")
				ctx, cancel := w.Ctx()
				defer cancel()
				bury := func(ids ...string) {
					for _, id := range ids {
						w.publish(b, q, msg(id))
						s := w.subscribe(b, q, 1)
						w.Must(w.receive(s).DeadLetter(ctx, broker.Dead{Reason: "why", Unreadable: id != "failed"}), "DeadLetter")
						w.closeSub(s)
					}
					w.put(b, q, broker.Dead{Message: msg("put"), Reason: "why", Unreadable: true})
				}
				bury("failed", "bound")
				w.listDead(w.Open(), q, 10, 3)
				if w.h.Promises.Inspect {
					w.wantStats(b, q, broker.Stats{Dead: 3})
				}
				var shown []string
				w.Must(w.deadLetterer(b).ScanDead(ctx, q, func(d *broker.Dead) broker.DeadAction {
					shown = append(shown, d.Message.ID)
					return broker.DeadRemove
				}), "ScanDead")
				if slices.Sort(shown); !slices.Equal(shown, []string{"bound", "failed", "put"}) {
					w.Errorf("the scan has shown %v", shown)
				}
				w.listDead(b, q, 10, 0)
				bury("another")
				w.listDead(b, q, 10, 2)
				w.counts(func(ctx context.Context) (int, error) { return w.deadLetterer(b).PurgeDead(ctx, q) }, 2, "PurgeDead")
				w.listDead(b, q, 10, 0)
			},
		},
		{
			Area: "dead letters", Name: "long and odd texts", Needs: []need{needsDeadLetters},
			Explain: "The first 4 KiB of a reason and the first 8 KiB of a stack are stored, as valid UTF-8; without them the fields are empty.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "texts")
				w.put(b, q, broker.Dead{Message: msg("long"), Reason: strings.Repeat("ü☠", 5000), Stack: "x" + strings.Repeat("☠", 5000), Attempts: -1})
				w.put(b, q, broker.Dead{Message: msg("odd"), Reason: "a\x00b\xffc", Stack: "\xff"})
				w.put(b, q, broker.Dead{Message: msg("none")})
				dead := w.listDead(b, q, 10, 3)
				for _, d := range dead {
					if !utf8.ValidString(d.Reason) || !utf8.ValidString(d.Stack) || len(d.Reason) > broker.MaxReason || len(d.Stack) > broker.MaxStack || d.Attempts != 0 {
						w.Errorf("%s: a reason of %d bytes, a stack of %d, %d attempts", name(d.Message), len(d.Reason), len(d.Stack), d.Attempts)
					}
				}
				if w.h.Promises.Reasonless {
					return
				}
				if l := dead[0]; len(l.Reason) < broker.MaxReason-3 || len(l.Stack) < broker.MaxStack-3 || strings.ContainsAny(l.Reason+l.Stack, "?\uFFFD") {
					w.Errorf("of the long texts %d and %d bytes are kept", len(l.Reason), len(l.Stack))
				}
				if l := dead[2]; l.Reason != "" || l.Stack != "" {
					w.Errorf("a letter that says nothing has reason %q and stack %q", l.Reason, l.Stack)
				}
			},
		},
		{
			Area: "dead letters", Name: "a letter put twice", Needs: []need{needsDeadLetters},
			Explain: "The same (ID, Generation) put twice is one letter or two; another Generation is another letter.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "twice")
				for range 2 {
					w.put(b, q, broker.Dead{Message: msg("a"), Reason: "why"})
				}
				next := msg("a")
				next.Generation = 1
				w.put(b, q, broker.Dead{Message: next, Reason: "why"})
				ctx, cancel := w.Ctx()
				defer cancel()
				dead, err := broker.ListDead(ctx, b, q, 10)
				w.Must(err, "ListDead")
				if n := len(dead); n < 2 || n > 3 || dead[n-1].Message.Generation != 1 {
					w.Errorf("%d dead letters", n)
				}
			},
		},
		{
			Area: "dead letters", Name: "no message is handed out", Needs: []need{needsDeadLetters},
			Explain: "A dead letter that was put is not delivered to consumers, and a scan does not change that.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "apart")
				s := w.subscribe(b, q, 0)
				w.put(b, q, broker.Dead{Message: msg("a"), Reason: "why"})
				w.listDead(b, q, 10, 1)
				w.nothing(s, "after PutDead and a scan")
			},
		},
		{
			Area: "dead letters", Name: "a scan keeps, removes and stops", Needs: []need{needsDeadLetters},
			Explain: "ScanDead shows the letters oldest first, each at most once; DeadRemove removes that letter for good, DeadKeep and DeadStop leave it, and DeadStop ends the scan.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "scan")
				for i := range 6 {
					w.put(b, q, broker.Dead{Message: msg(fmt.Sprint(i)), Reason: "why"})
				}
				w.scans(b, q, map[string]broker.DeadAction{"1": broker.DeadRemove, "3": broker.DeadRemove}, "0", "1", "2", "3", "4", "5")
				w.scans(w.Open(), q, map[string]broker.DeadAction{"2": broker.DeadStop}, "0", "2")
				w.scans(b, q, map[string]broker.DeadAction{"0": broker.DeadStop}, "0")
				w.scans(b, q, map[string]broker.DeadAction{"0": broker.DeadRemove, "4": broker.DeadStop}, "0", "2", "4")
				w.put(b, q, broker.Dead{Message: msg("6"), Reason: "why"})
				w.scans(b, q, nil, "2", "4", "5", "6")
				w.scans(b, q, map[string]broker.DeadAction{"2": broker.DeadRemove, "4": broker.DeadRemove, "5": broker.DeadRemove, "6": broker.DeadRemove}, "2", "4", "5", "6")
				w.scans(b, q, nil)
			},
		},
		{
			Area: "dead letters", Name: "a scan that publishes", Needs: []need{needsDeadLetters},
			Explain: "The function of a scan may use the Broker: the messages that it publishes are delivered, and a letter that it puts does not make the scan endless.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "requeue")
				for i := range 3 {
					w.put(b, q, broker.Dead{Message: msg(fmt.Sprint(i)), Reason: "why"})
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				shown := 0
				w.Must(w.deadLetterer(b).ScanDead(ctx, q, func(d *broker.Dead) broker.DeadAction {
					if shown++; shown > 100 {
						return broker.DeadStop
					}
					next := *d.Message
					next.Generation++
					w.publish(b, q, &next)
					w.put(b, q, broker.Dead{Message: msg(fmt.Sprint("again-", shown)), Reason: "why"})
					return broker.DeadRemove
				}), "ScanDead")
				if shown < 3 || shown > 6 {
					w.Errorf("%d letters were shown", shown)
				}
				s := w.subscribe(b, q, 0)
				for range 3 {
					d := w.receive(s)
					w.wantFirst(d, "a letter that was requeued")
					w.ack(d)
				}
			},
		},
		{
			Area: "dead letters", Name: "a scan whose ctx ends", Needs: []need{needsDeadLetters},
			Explain: "A scan ends with its ctx and returns its error; the letters that were not removed still exist, in their order, for the next scan.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "cancel")
				for i := range 4 {
					w.put(b, q, broker.Dead{Message: msg(fmt.Sprint(i)), Reason: "why"})
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				shown := 0
				err := w.deadLetterer(b).ScanDead(ctx, q, func(*broker.Dead) broker.DeadAction {
					if shown++; shown == 2 {
						cancel()
					}
					return broker.DeadKeep
				})
				if err := w.Clean(err); !errors.Is(err, context.Canceled) || shown != 2 {
					w.Errorf("%d letters were shown, then: %v", shown, err)
				}
				w.listDead(b, q, 10, 4) // a server may return them a moment later
				w.scans(b, q, nil, "0", "1", "2", "3")
			},
		},
		{
			Area: "dead letters", Name: "two scans at once", Needs: []need{needsDeadLetters},
			Explain: "Scans of one queue by several goroutines and processes: each existing letter is shown to one of them, and each scan removes the letters that it chose.",
			Run: func(w *world) {
				bs := []broker.Broker{w.Open(), w.Open()}
				q := w.queue(bs[0], "both")
				want := map[string]bool{}
				for i := range 60 {
					want[fmt.Sprint(i)] = true
					w.put(bs[0], q, broker.Dead{Message: msg(fmt.Sprint(i)), Reason: "why"})
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range 4 {
					all.Go(func() {
						err := w.deadLetterer(bs[i%2]).ScanDead(ctx, q, func(d *broker.Dead) broker.DeadAction {
							mu.Lock()
							defer mu.Unlock()
							delete(want, d.Message.ID)
							return broker.DeadRemove
						})
						if err != nil {
							w.Errorf("ScanDead: %v", err)
						}
					})
				}
				all.Wait()
				w.listDead(bs[0], q, 10, 0)
				if len(want) > 0 {
					w.Errorf("%d letters were never shown", len(want))
				}
			},
		},
		{
			Area: "dead letters", Name: "3,000 letters", Needs: []need{needsDeadLetters},
			Explain: "A scan shows any number of letters in their order; the next scan shows the letters that were kept or not reached in the same order.",
			Run:     manyLetters,
		},
		{
			Area: "dead letters", Name: "bounded by number", Needs: []need{needsDeadLetters, needsBounds},
			Explain: "The adapter limits the letters of a queue as configured and drops the oldest first. PutDead and DeadLetter are never refused or delayed for that. Audit reports full letters, and Stats the number of dropped ones, if it can.",
			Run: func(w *world) {
				b := w.Own(w.h.Bounded(w.TB, 5, 0))
				q := w.queue(b, "bounded")
				for i := range 9 {
					w.put(b, q, broker.Dead{Message: msg(fmt.Sprint(i)), Reason: "why"})
				}
				w.publish(b, q, msg("9"))
				w.deadLetter(b, q, "why")
				var got []string
				w.Until("the five youngest letters are left", func() bool {
					got = nil
					for _, d := range w.listDead(b, q, 10, 5) {
						got = append(got, d.Message.ID)
					}
					return slices.Equal(got, []string{"5", "6", "7", "8", "9"})
				})
				w.auditFull(b, q)
				i, ok := capability.As[broker.Inspector](b)
				if !ok {
					return
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				st, err := i.Stats(ctx, q)
				w.Must(err, "Stats")
				if st.DeadDropped != 5 && st.DeadDropped != -1 {
					w.Errorf("Stats tells of %d letters that were dropped, want 5", st.DeadDropped)
				}
			},
		},
		{
			Area: "dead letters", Name: "bounded by age", Needs: []need{needsDeadLetters, needsBounds, needsAges},
			Explain: "A letter is removed at the configured age, not earlier.",
			Run: func(w *world) {
				b := w.Own(w.h.Bounded(w.TB, 0, 2*time.Second))
				q := w.queue(b, "ages")
				w.put(b, q, broker.Dead{Message: msg("a"), Reason: "why"})
				w.listDead(b, q, 10, 1)
				w.listDead(b, q, 10, 0)
			},
		},
	}
}

// auditFull waits until Audit reports that the dead letters of the queue are full. It does nothing
// if b is not an Auditor.
func (w *world) auditFull(b broker.Broker, queue string) {
	w.Helper()
	a, ok := capability.As[broker.Auditor](b)
	if !ok {
		return
	}
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Until("Audit tells that the dead letters are full", func() bool {
		notes, err := a.Audit(ctx, queue)
		w.Must(err, "Audit")
		return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, queue) && strings.Contains(n, "full") })
	})
}

// needsAges is the need for letters with a time.
func needsAges(h *Harness) string {
	return suite.Unless(!h.Promises.Reasonless, "the adapter promises Reasonless: a letter has no time")
}

// manyLetters is the case of 3,000 letters.
func manyLetters(w *world) {
	const lanes, each = 20, 150
	b := w.Open()
	q := w.queue(b, "many")
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for i := range each {
				w.put(b, q, broker.Dead{Message: msg(fmt.Sprintf("%d-%d", lane, i)), Reason: "why"})
			}
		})
	}
	all.Wait()
	first := w.scan(b, q, func(i int) broker.DeadAction {
		if i%3 == 1 {
			return broker.DeadRemove
		}
		return broker.DeadKeep
	})
	next := map[string]int{}
	for _, id := range first {
		lane, number, _ := strings.Cut(id, "-")
		if number != fmt.Sprint(next[lane]) {
			w.Fatalf("letter %s is shown where %d of its lane is next", id, next[lane])
		}
		next[lane]++
	}
	if len(first) != lanes*each {
		w.Fatalf("%d letters are shown, want %d", len(first), lanes*each)
	}
	var kept []string
	for i, id := range first {
		if i%3 != 1 {
			kept = append(kept, id)
		}
	}
	for _, few := range []int{700, 10, 40, len(kept)} {
		got := w.scan(w.Open(), q, func(i int) broker.DeadAction {
			if i == few-1 {
				return broker.DeadStop
			}
			return broker.DeadKeep
		})
		if !slices.Equal(got, kept[:few]) {
			w.Fatalf("a scan of %d of the letters that were kept shows %d, of which at %d there is another", few, len(got), firstDifference(got, kept))
		}
	}
}

// firstDifference returns the first index at which a and b differ, or the length of the shorter
// one.
func firstDifference(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// put puts the dead letter d with PutDead. An error fails the case at once.
func (w *world) put(b broker.Broker, queue string, d broker.Dead) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(w.deadLetterer(b).PutDead(ctx, queue, d), "PutDead(%q, %q)", queue, d.Message.ID)
}

// scan scans the dead letters of a queue. action decides about a letter by its index in this scan.
// It returns the ids of the letters that were shown. An error fails the case at once.
func (w *world) scan(b broker.Broker, queue string, action func(i int) broker.DeadAction) (ids []string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(w.deadLetterer(b).ScanDead(ctx, queue, func(d *broker.Dead) broker.DeadAction {
		ids = append(ids, d.Message.ID)
		return action(len(ids) - 1)
	}), "ScanDead(%q)", queue)
	return ids
}

// scans scans the dead letters of a queue, with an action by id, DeadKeep for the others. It
// expects that the scan shows the letters with the ids want, in this order.
func (w *world) scans(b broker.Broker, queue string, actions map[string]broker.DeadAction, want ...string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	var got []string
	w.Must(w.deadLetterer(b).ScanDead(ctx, queue, func(d *broker.Dead) broker.DeadAction {
		got = append(got, d.Message.ID)
		return actions[d.Message.ID]
	}), "ScanDead(%q)", queue)
	if !slices.Equal(got, want) {
		w.Fatalf("a scan shows %q, want %q", got, want)
	}
}

// wantNotes expects that the dead letter d has the queue, texts, attempts and time of want. If the
// adapter promises Reasonless, only the queue may be set.
func (w *world) wantNotes(d, want broker.Dead) {
	w.Helper()
	if w.h.Promises.Reasonless {
		want = broker.Dead{Queue: want.Queue}
	}
	if d.Queue != want.Queue || d.Reason != want.Reason || d.Stack != want.Stack || d.Attempts != want.Attempts || !d.At.Equal(want.At) {
		d.Message = nil
		w.Errorf("the letter says %+v, want %+v", d, want)
	}
}
