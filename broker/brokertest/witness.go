package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// backAgain limits the time until a node is present again after its connection was restored.
const backAgain = 5 * time.Second

// witnessCases returns the cases of Witness.
func witnessCases() []testCase {
	return append(noteCases(), nodeCases()...)
}

// noteCases returns the cases of NoteStart and JudgeStart.
func noteCases() []testCase {
	return []testCase{
		{
			Area: "witness", Name: "notes come back, oldest first", Needs: []need{needsWitness},
			Explain: "NoteStart stores a start and returns the notes of the same (ID, Generation) in the queue that any process stored before it, oldest first, unchanged.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "notes")
				first, second, third := w.note("1", "node-a"), w.note("2", "node-b"), w.note(strings.Repeat("~", 64), "c."+strings.Repeat("c", 126-len(w.h.Prefix)))
				second.Alone = true
				third.At = third.At.Add(-time.Hour) // the order is that of storing
				w.noteStart(b1, q, first)
				w.noteStart(b2, q, second, first)
				w.noteStart(b1, q, third, first, second)
				w.noteStart(b2, q, w.note("4", "node-a"), first, second, third)
			},
		},
		{
			Area: "witness", Name: "of one message only", Needs: []need{needsWitness},
			Explain: "The notes of another ID, another Generation and another queue are not returned.",
			Run: func(w *world) {
				b := w.Open()
				q, q2 := w.queue(b, "one"), w.queue(b, "other")
				for i, id := range []string{"m", "m.1", "m 1", "M", "m=2E1", "{m}", "~m", "m/1", "m*", ">", strings.Repeat("i", 200)} {
					if id == "m 1" { // no broker accepts it
						continue
					}
					for generation := range 2 {
						for _, q := range []string{q, q2} {
							s := w.note(fmt.Sprintf("%d-%d-%s", i, generation, q), "node")
							s.ID, s.Generation = id, generation
							w.noteStart(b, q, s)
						}
					}
				}
			},
		},
		{
			Area: "witness", Name: "the same Nonce is the same note", Needs: []need{needsWitness},
			Explain: "NoteStart with a Nonce that is stored already changes nothing and returns the notes before that note.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "nonce")
				first, second, third := w.note("1", "node"), w.note("2", "node"), w.note("3", "node")
				for range 2 {
					w.noteStart(b, q, first)
				}
				w.noteStart(b, q, second, first)
				w.noteStart(b, q, third, first, second)
				w.noteStart(b, q, second, first)
				w.noteStart(b, q, first)
				w.noteStart(b, q, w.note("4", "node"), first, second, third)
			},
		},
		{
			Area: "witness", Name: "verdicts", Needs: []need{needsWitness},
			Explain: "JudgeStart stores the verdict of one note, which is returned from then on; the latest counts. A missing note is not an error.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "verdicts")
				notes := []broker.Start{w.note("1", "a"), w.note("2", "b"), w.note("3", "c")}
				for i, s := range notes {
					w.noteStart(b1, q, s, notes[:i]...)
				}
				w.judgeStart(b2, q, &notes[0], broker.StartDied)
				w.judgeStart(b1, q, &notes[1], broker.StartDied)
				w.judgeStart(b2, q, &notes[1], broker.StartCleared)
				stranger := w.note("9", "d")
				w.judgeStart(b1, q, &stranger, broker.StartDied)
				stranger.ID = "never-noted"
				w.judgeStart(b1, q, &stranger, broker.StartDied)
				w.noteStart(b2, q, w.note("4", "d"), notes...)
			},
		},
		{
			Area: "witness", Name: "many notes", Needs: []need{needsWitness},
			Explain: "A broker keeps at least MaxStarts notes of a pair; if there are more it drops the oldest cleared one first, so that no crash is forgotten.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "many")
				ctx, cancel := w.Ctx()
				defer cancel()
				var want []string
				for i := range broker.MaxStarts + 6 {
					s := w.note(fmt.Sprint(i), "node")
					_, err := w.witness(b).NoteStart(ctx, q, s)
					w.Must(err, "NoteStart %d", i)
					switch {
					case i%10 == 5:
						w.judgeStart(b, q, &s, broker.StartCleared)
						continue
					case i%2 == 0:
						w.judgeStart(b, q, &s, broker.StartDied)
					}
					want = append(want, s.Nonce)
				}
				got, err := w.witness(b).NoteStart(ctx, q, w.note("last", "node"))
				w.Must(err, "NoteStart")
				got = slices.DeleteFunc(got, func(s broker.Start) bool { return s.Verdict == broker.StartCleared })
				if has := nonces(got); !slices.Equal(has, want) {
					w.Errorf("the notes that are not cleared are %q, want %q", has, want)
				}
			},
		},
		{
			Area: "witness", Name: "starts at the same time", Needs: []need{needsWitness},
			Explain: "Of any two notes of a pair exactly one is returned to the other, also when they are stored at the same time by several processes.",
			Run: func(w *world) {
				const each = 8
				bs := []broker.Broker{w.Open(), w.Open()}
				q := w.queue(bs[0], "race")
				seen := make([][]broker.Start, each*len(bs))
				ctx, cancel := w.Ctx()
				defer cancel()
				var wg sync.WaitGroup
				for i := range seen {
					wg.Go(func() {
						var err error
						seen[i], err = w.witness(bs[i%len(bs)]).NoteStart(ctx, q, w.note(fmt.Sprint(i), "node"))
						if w.Clean(err) != nil {
							w.Errorf("NoteStart: %v", err)
						}
					})
				}
				wg.Wait()
				slices.SortFunc(seen, func(a, b []broker.Start) int { return len(a) - len(b) })
				for i := range seen {
					if len(seen[i]) != i || i > 0 && !slices.Equal(nonces(seen[i])[:i-1], nonces(seen[i-1])) {
						w.Fatalf("the start that came as number %d was told of %q, the one before it of %q", i+1, nonces(seen[i]), nonces(seen[max(i-1, 0)]))
					}
				}
			},
		},
		{
			Area: "witness", Name: "what is no start is refused", Needs: []need{needsWitness},
			Explain: "A Start with an empty ID, a negative Generation, or an invalid Nonce or Node is ErrMalformed, before the server receives it.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "malformed")
				ctx, cancel := w.Ctx()
				defer cancel()
				bad := make(map[string]broker.Start)
				change := func(what string, with func(s *broker.Start)) {
					s := w.note("1", "node")
					with(&s)
					bad[what] = s
				}
				change("no id", func(s *broker.Start) { s.ID = "" })
				change("generation -1", func(s *broker.Start) { s.Generation = -1 })
				for _, nonce := range []string{"", "a b", "a\nb", "é", strings.Repeat("n", 65)} {
					change(fmt.Sprintf("nonce %.20q", nonce), func(s *broker.Start) { s.Nonce = nonce })
				}
				for _, node := range badNames {
					change(fmt.Sprintf("node %.20q", node), func(s *broker.Start) { s.Node = node })
				}
				for what, s := range bad {
					_, err := w.witness(b).NoteStart(ctx, q, s)
					w.WantIs(err, broker.ErrMalformed, "NoteStart with %s", what)
					if strings.HasPrefix(what, "node") {
						_, err := w.witness(b).NodeState(ctx, s.Node)
						w.WantIs(err, broker.ErrMalformed, "NodeState of %s", what)
						w.WantIs(w.witness(b).Leave(ctx, s.Node), broker.ErrMalformed, "Leave of %s", what)
						continue
					}
					w.WantIs(w.witness(b).JudgeStart(ctx, q, s), broker.ErrMalformed, "JudgeStart with %s", what)
				}
			},
		},
	}
}

// nodeCases returns the cases of NodeState and Leave.
func nodeCases() []testCase {
	return []testCase{
		{
			Area: "witness", Name: "present until Leave", Needs: []need{needsWitness},
			Explain: "Every process sees a node as present from its first NoteStart on, and as left after Leave has returned. Leave does nothing for a node that noted no start.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "present")
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, b := range []broker.Broker{b1, b2} {
					w.wantState(b, "a", broker.NodeAbsent)
				}
				w.noteStart(b1, q, w.note("1", "a"))
				w.noteStart(b1, q, w.note("2", "b"), w.note("1", "a"))
				for _, b := range []broker.Broker{b1, b2} {
					w.wantState(b, "a", broker.NodePresent)
					w.wantState(b, "b", broker.NodePresent)
					w.wantState(b, "c", broker.NodeAbsent)
				}
				w.Must(w.witness(b1).Leave(ctx, w.node("a")), "Leave")
				w.Must(w.witness(b1).Leave(ctx, w.node("c")), "Leave of a node that noted nothing")
				for range 2 {
					for _, b := range []broker.Broker{b1, b2} {
						w.wantState(b, "a", broker.NodeLeft)
						w.wantState(b, "b", broker.NodePresent)
						w.wantState(b, "c", broker.NodeAbsent)
					}
					w.Must(w.witness(b1).Leave(ctx, w.node("a")), "Leave once more")
				}
				w.noteStart(b1, q, w.note("3", "a"), w.note("1", "a"), w.note("2", "b"))
				w.wantState(b2, "a", broker.NodeLeft)
				w.closeBroker(b1)
				w.wantState(b2, "a", broker.NodeLeft)
			},
		},
		{
			Area: "witness", Name: "present means now", Needs: []need{needsWitness},
			Explain: "A node whose Broker is closed without Leave is absent: earlier signs of life do not count, since its process may have died now. The nodes of other Brokers stay present.",
			Run: func(w *world) {
				b1, b2, b3 := w.Open(), w.Open(), w.Open()
				q := w.queue(b1, "closed")
				w.noteStart(b1, q, w.note("1", "a"))
				w.noteStart(b2, q, w.note("2", "b"), w.note("1", "a"))
				w.closeBroker(b1)
				w.wantState(b3, "a", broker.NodeAbsent)
				w.wantState(b3, "b", broker.NodePresent)
			},
		},
		{
			Area: "witness", Name: "a node that is cut off", Needs: []need{needsWitness, needsIsolate},
			Explain: "A node without a connection is absent after some seconds, even if no process reported that; it is present again within seconds of its connection. Meanwhile it cannot see the state of others: NodeState returns an error.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "isolated")
				w.noteStart(b1, q, w.note("1", "a"))
				w.noteStart(b2, q, w.note("2", "b"), w.note("1", "a"))
				back := sync.OnceFunc(w.h.Isolate(w.TB, b1))
				defer back()
				w.absentSoon(b2, "a", "b")
				w.bounded(func(ctx context.Context) error {
					_, err := w.witness(b1).NodeState(ctx, "b")
					return err
				}, "NodeState")
				back()
				w.presentSoon(b2, "a")
				w.wantState(b2, "b", broker.NodePresent)
			},
		},
		{
			Area: "witness", Name: "a cut connection", Needs: []need{needsWitness, needsSever},
			Explain: "Signs of life return by themselves within seconds of the connection.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "cut")
				w.noteStart(b1, q, w.note("1", "a"))
				for range 3 {
					w.h.Sever(w.TB, b1)
					w.presentSoon(b2, "a")
				}
			},
		},
		{
			Area: "witness", Name: "while the server is away", Needs: []need{needsWitness, needsDown},
			Explain: "NodeState returns an error, and no state, while the server is down; Leave fails. Afterwards the living nodes are present again, and Leave can be repeated.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "away")
				w.noteStart(b1, q, w.note("1", "a"))
				w.wantState(b2, "a", broker.NodePresent)
				up := sync.OnceFunc(w.h.Down(w.TB))
				defer up()
				w.bounded(func(ctx context.Context) error { _, err := w.witness(b2).NodeState(ctx, "a"); return err }, "NodeState")
				w.bounded(func(ctx context.Context) error { return w.witness(b1).Leave(ctx, w.node("a")) }, "Leave")
				up()
				w.Until("Leave", func() bool {
					ctx, cancel := w.Ctx()
					defer cancel()
					err := w.Clean(w.witness(b1).Leave(ctx, w.node("a")))
					if err != nil && !transient(err) {
						w.Fatalf("Leave after an outage: %v", err)
					}
					return err == nil
				})
				w.Until("NodeLeft", func() bool {
					state, err := w.nodeState(b2, "a")
					return err == nil && state == broker.NodeLeft
				})
			},
		},
		{
			Area: "witness", Name: "after Close", Needs: []need{needsWitness},
			Explain: "NodeState and Leave return ErrClosed after Close.",
			Run: func(w *world) {
				b := w.Open()
				w.noteStart(b, w.queue(b, "closed"), w.note("1", "a"))
				w.closeBroker(b)
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := w.witness(b).NodeState(ctx, "a")
				w.WantIs(err, broker.ErrClosed, "NodeState after Close")
				w.WantIs(w.witness(b).Leave(ctx, "a"), broker.ErrClosed, "Leave after Close")
			},
		},
	}
}

// noted is the time in the notes of the cases, in milliseconds since 1970.
const noted = 1_767_000_000_123

// note returns a note of a start of the message "m", with the time noted.
func note(nonce, node string) broker.Start {
	return broker.Start{ID: "m", Nonce: nonce, Node: node, At: time.UnixMilli(noted)}
}

// node returns the full name of a node: the prefix of the harness and name.
func (w *world) node(name string) string { return w.h.Prefix + name }

// note returns a note of a start of the message "m" on the node with the given short name.
func (w *world) note(nonce, node string) broker.Start { return note(nonce, w.node(node)) }

// nonces returns the nonces of notes, in their order.
func nonces(notes []broker.Start) []string {
	ns := make([]string, len(notes))
	for i := range notes {
		ns[i] = notes[i].Nonce
	}
	return ns
}

// witness returns b as a Witness. It fails the case at once if b is not a Witness.
func (w *world) witness(b broker.Broker) broker.Witness {
	w.Helper()
	n, ok := capability.As[broker.Witness](b)
	if !ok {
		w.Fatal("Witness is promised and there is no broker.Witness")
	}
	return n
}

// noteStart stores a note and expects the notes want that were stored before it.
func (w *world) noteStart(b broker.Broker, queue string, s broker.Start, want ...broker.Start) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	got, err := w.witness(b).NoteStart(ctx, queue, s)
	w.Must(err, "NoteStart(%q, %s/%d)", queue, s.ID, s.Generation)
	w.sameNotes(got, want)
}

// sameNotes expects that two lists of notes are equal, with times that differ by less than a
// millisecond.
func (w *world) sameNotes(got, want []broker.Start) {
	w.Helper()
	same := slices.EqualFunc(got, want, func(a, b broker.Start) bool {
		near := a.At.Sub(b.At).Abs() < time.Millisecond
		a.At, b.At = time.Time{}, time.Time{}
		return near && a == b
	})
	if !same {
		w.Errorf("the earlier notes are\n%+v, want\n%+v", got, want)
	}
}

// judgeStart sets s.Verdict to v and stores the verdict with JudgeStart. An error fails the case at
// once.
func (w *world) judgeStart(b broker.Broker, queue string, s *broker.Start, v broker.StartVerdict) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	s.Verdict = v
	w.Must(w.witness(b).JudgeStart(ctx, queue, *s), "JudgeStart(%q, %s)", queue, s.Nonce)
}

// nodeState asks once for the state of a node, by its short name, and returns the answer. An error
// that neither a lost connection nor a blocked server explains fails the case at once.
func (w *world) nodeState(b broker.Broker, node string) (broker.NodeState, error) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	state, err := w.witness(b).NodeState(ctx, w.node(node))
	if w.Clean(err) != nil && !transient(err) && !errors.Is(err, broker.ErrBlocked) {
		w.Fatalf("NodeState(%q): %v", node, err)
	}
	return state, err
}

// wantState asks once for the state of a node, by its short name, and expects want and no error.
func (w *world) wantState(b broker.Broker, node string, want broker.NodeState) {
	w.Helper()
	if state, err := w.nodeState(b, node); err != nil || state != want {
		w.Errorf("NodeState(%q) = %d, %v; want %d", node, state, err, want)
	}
}

// absentSoon waits until a node is absent, by its short name. It expects that the node lives is
// present all the time.
func (w *world) absentSoon(b broker.Broker, node, lives string) {
	w.Helper()
	w.Until(node+" is absent", func() bool {
		w.wantState(b, lives, broker.NodePresent)
		state, err := w.nodeState(b, node)
		return err == nil && state == broker.NodeAbsent
	})
}

// presentSoon waits until a node, by its short name, is present after its connection was restored.
// It expects that this takes at most backAgain and Slack. A node that has left fails the case at
// once.
func (w *world) presentSoon(b broker.Broker, node string) {
	w.Helper()
	begun := time.Now()
	w.Until(node+" is present", func() bool {
		state, err := w.nodeState(b, node)
		if state == broker.NodeLeft {
			w.Fatalf("NodeState(%q) is NodeLeft", node)
		}
		return err == nil && state == broker.NodePresent
	})
	if took := time.Since(begun); took > backAgain+w.Slack {
		w.Errorf("%s was present again after %v, want %v at most", node, took, backAgain)
	}
}
