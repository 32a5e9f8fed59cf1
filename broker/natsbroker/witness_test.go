package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func noteOf(id, nonce string) broker.Start {
	return broker.Start{ID: id, Nonce: nonce, Node: "node", At: time.Now()}
}

func noteStart(t testing.TB, b *natsbroker.Broker, s broker.Start) []broker.Start {
	t.Helper()
	earlier, err := b.NoteStart(testwait.Long(t), "q", s)
	if err != nil {
		t.Fatalf("NoteStart: %v", err)
	}
	return earlier
}

func nodeState(t testing.TB, b *natsbroker.Broker) broker.NodeState {
	t.Helper()
	state, err := b.NodeState(testwait.Long(t), "node")
	if err != nil {
		t.Fatalf("NodeState: %v", err)
	}
	return state
}

// TestNotesInLeaderElection shows that NoteStart waits for the next leader, and that no confirmed
// note is lost with the old one.
func TestNotesInLeaderElection(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: one server only")
	}
	t.Parallel()
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	cfg := natsbroker.Config{Connect: natsconnect.Config{URLs: c.URLs()}, Namespace: testserver.Namespace(), Replicas: 3}
	b := connect(t, cfg)
	declare(t, b)
	const writers = 4
	var confirmed [writers]int
	noteStart(t, b, noteOf("first", "0"))
	stop := make(chan struct{})
	var some atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				s := noteOf(fmt.Sprintf("m-%d-%d", w, i/20), fmt.Sprint(i))
				earlier, err := b.NoteStart(testwait.Long(t), "q", s)
				for err != nil && (errors.Is(err, broker.ErrIndeterminate) || errors.Is(err, broker.ErrUnavailable)) && t.Context().Err() == nil {
					earlier, err = b.NoteStart(testwait.Long(t), "q", s) // it was connected to the dead server
				}
				if err != nil || len(earlier) != i%20 {
					t.Errorf("NoteStart %d of writer %d: %d earlier notes, %v; want %d", i, w, len(earlier), err, i%20)
					return
				}
				confirmed[w]++
				some.Add(1)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	testwait.Until(t, "some notes", func() bool { return some.Load() > 200 })
	leader, err := c.Leader(testwait.Long(t), "SWJ_"+cfg.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	c.KillNode(leader)
	before := some.Load()
	testwait.Until(t, "notes with the next leader", func() bool { return some.Load() > before+200 })
	close(stop)
	wg.Wait()
	for w, n := range confirmed {
		last := (n - 1) / 20
		if got := noteStart(t, b, noteOf(fmt.Sprintf("m-%d-%d", w, last), "look")); len(got) != n-last*20 {
			t.Errorf("writer %d: %d notes of the last message, %d were confirmed", w, len(got), n-last*20)
		}
	}
	if err := c.RestartNode(testwait.Long(t), leader); err != nil {
		t.Fatal(err)
	}
}

// TestSilentNode shows that a node whose network drops all data is absent, although its server does
// not know yet. An observer with such a network gets an error.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	proxy := testserver.NewProxy(t, srv.Addr())
	a := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{proxy.URL(srv.URL())}}, Namespace: ns})
	b := connect(t, natsbroker.Config{Namespace: ns})
	declare(t, a)
	noteStart(t, a, noteOf("m", "1"))
	if state := nodeState(t, b); state != broker.NodePresent {
		t.Errorf("the state is %d before the fault", state)
	}
	proxy.BlackHole(true, true)
	// the consumer's limit for one question
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if state, err := b.NodeState(ctx, "node"); err != nil || state != broker.NodeAbsent {
		t.Errorf("the state of a node that is silent is %d, %v", state, err)
	}
	if state, err := a.NodeState(testwait.Brief(t), "node"); err == nil {
		t.Errorf("an observer without a network sees state %d", state)
	}
	proxy.Heal()
	testwait.Until(t, "that the node is present again", func() bool { return nodeState(t, b) == broker.NodePresent })
}

// TestNotesStreamIsDeleted shows that a deleted stream of notes is created again.
func TestNotesStreamIsDeleted(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declare(t, b)
	js := bare(t, srv.URL())
	gone := func() {
		t.Helper()
		if err := js.DeleteStream(testwait.Long(t), "SWJ_"+ns); err != nil {
			t.Fatal(err)
		}
	}
	noteStart(t, b, noteOf("m", "1"))
	gone()
	if got := noteStart(t, b, noteOf("m", "2")); len(got) != 0 {
		t.Errorf("the notes of a stream that was deleted: %+v", got)
	}
	gone()
	if err := b.JudgeStart(testwait.Long(t), "q", noteOf("m", "2")); err != nil {
		t.Errorf("JudgeStart: %v", err)
	}
	gone()
	if state := nodeState(t, b); state != broker.NodePresent {
		t.Errorf("the state is %d", state)
	}
	if err := b.Leave(testwait.Long(t), "node"); err != nil {
		t.Errorf("Leave: %v", err)
	}
	if state := nodeState(t, b); state != broker.NodeLeft {
		t.Errorf("the state after Leave is %d", state)
	}
}

// BenchmarkNoteStart measures 1,000 notes one after another, and 1,000 at once.
func BenchmarkNoteStart(b *testing.B) {
	srv := testserver.OwnNATS(b, testserver.NATSConfig{})
	r := connect(b, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.URL()}}})
	declare(b, r)
	const n = 1000
	p50 := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2].Microseconds())
	}
	round := 0
	for b.Loop() {
		round++
		took := make([]time.Duration, n)
		for i := range took {
			begun := time.Now()
			noteStart(b, r, noteOf(fmt.Sprintf("one-%d-%d", round, i), "nonce"))
			took[i] = time.Since(begun)
		}
		b.ReportMetric(p50(took), "p50-µs")
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range took {
			wg.Go(func() {
				begun := time.Now()
				if _, err := r.NoteStart(testwait.Long(b), "q", noteOf(fmt.Sprintf("at-once-%d-%d", round, i), "nonce")); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(begun)
			})
		}
		wg.Wait()
		b.ReportMetric(float64(time.Since(begun).Milliseconds()), "all-at-once-ms")
		b.ReportMetric(p50(took), "at-once-p50-µs")
	}
}

// TestNotesInOlderStream shows that the stream of an older version gets the subjects of notes, and
// that the older program continues to work.
func TestNotesInOlderStream(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	js := bare(t, srv.URL())
	prefix := "swj." + ns + "."
	old := jetstream.StreamConfig{
		Name:      "SWJ_" + ns,
		Subjects:  []string{prefix + "T.*.*.*", prefix + "S.*.*", prefix + "D.*.*.*", prefix + "Q.*", prefix + "M.*"},
		Retention: jetstream.WorkQueuePolicy, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld, Duplicates: 30 * time.Second,
		AllowRollup: true, AllowDirect: true, AllowMsgTTL: true, AllowMsgSchedules: true, AllowAtomicPublish: true,
	}
	if _, err := js.CreateStream(testwait.Long(t), old); err != nil {
		t.Fatal(err)
	}
	b := connect(t, natsbroker.Config{Namespace: ns})
	declare(t, b)
	subjects := func() []string {
		t.Helper()
		st, err := js.Stream(testwait.Long(t), old.Name)
		if err != nil {
			t.Fatal(err)
		}
		return st.CachedInfo().Config.Subjects
	}
	publish(t, b, "a", "b")
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1})
	ack(t, receive(t, s))
	if got := subjects(); !slices.Equal(got, old.Subjects) {
		t.Errorf("before the first note the stream has the subjects %q", got)
	}
	noteStart(t, b, noteOf("m", "1"))
	if got, want := subjects(), append(old.Subjects, prefix+"W.*.*.*", prefix+"L.*"); !slices.Equal(got, want) {
		t.Errorf("after it the stream has the subjects %q, want %q", got, want)
	}
	if got := noteStart(t, b, noteOf("m", "2")); len(got) != 1 {
		t.Errorf("the earlier notes are %+v", got)
	}
	d := receive(t, s)
	if n, _ := d.Deliveries(); d.Message().ID != "b" || n != 1 {
		t.Errorf("received %s, delivery %d", d.Message().ID, n)
	}
	ack(t, d)
}
