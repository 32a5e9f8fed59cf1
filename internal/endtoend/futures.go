package endtoend

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
	"github.com/swarmiji/swarmiji/task"
)

// testPendingOfNobody: an id that no producer submitted has no state. A reply queue reports that it
// cannot tell.
func testPendingOfNobody(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	unknown := r.producer.Pending("nobody-submitted-this")
	state, err := unknown.State(r.ctx())
	_, werr := r.expired(unknown)
	if resultstore.RepliesOnly(r.results) {
		if state != "" || !errors.Is(err, broker.ErrUnsupported) {
			t.Fatalf("over reply queues the state is %q, %v", state, err)
		}
		if !errors.Is(werr, broker.ErrUnsupported) || !errors.Is(werr, context.DeadlineExceeded) {
			t.Fatalf("over reply queues the result is %v", werr)
		}
	} else {
		if state != "" || !errors.Is(err, task.ErrNotFound) || !errors.Is(err, resultstore.ErrNotFound) {
			t.Fatalf("the state is %q, %v", state, err)
		}
		if !errors.Is(werr, context.DeadlineExceeded) || !strings.Contains(werr.Error(), "never submitted") {
			t.Fatalf("the result is %v", werr)
		}
	}
	if r.h.NoQueues {
		return
	}
	f := submit(r, add, pair{1, 2}, task.WithID("queued"))
	for _, p := range []task.Pending{f.Pending(), r.producer.Pending("queued")} {
		if state, err := p.State(r.ctx()); err != nil || state != task.StatePending {
			t.Fatalf("the state of a queued task of this producer is %q, %v", state, err)
		}
	}
	r.start()
	want(r, f, 3)
}

// expired waits for a result for 20 ms and returns the error of that wait, if the store was asked.
func (r *road) expired(p task.Pending) (value int, err error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	return value, p.Result(ctx, &value)
}

// testWorkflowIDs: a workflow that is submitted again with its id has the same steps.
func testWorkflowIDs(t *testing.T, open Open) {
	r := newWorks(t, open)
	r.start()
	flow := task.Chain3(inc, inc, inc)
	first := submitWork(r, flow, 1, task.WithID("again"))
	second := submitWork(r, flow, 1, task.WithID("again"))
	other := submitWork(r, flow, 1, task.WithID("other"))
	unnamed := submitWork(r, flow, 1)
	seen := make(map[task.ID]bool)
	for i, p := range first.Steps() {
		if id := second.Steps()[i].ID(); id != p.ID() {
			t.Errorf("step %d is %s at first and %s when submitted again", i, p.ID(), id)
		}
		for _, run := range []*task.Run[int]{first, other, unnamed} {
			if id := run.Steps()[i].ID(); seen[id] {
				t.Errorf("two steps are %s", id)
			} else {
				seen[id] = true
			}
		}
	}
	for _, run := range []*task.Run[int]{first, second, other, unnamed} {
		want(r, run.Future, 4)
	}
}

// testFailedStep: the error of a failed workflow names the step that failed.
func testFailedStep(t *testing.T, open Open) {
	r := newWorks(t, open)
	r.start()
	run := submitWork(r, task.Chain3(inc, odd, inc), 1)
	culprit := run.Steps()[1].ID()
	got := failure(r, run.Future, nil)
	if got.Step != "odd" || got.StepID != culprit || got.Message != "2: even" || !strings.Contains(got.Error(), "odd") {
		t.Errorf("the chain failed with %+v: %v", got, got)
	}
	if own := failure(r, task.FutureOf[int](run.Steps()[1]), nil); own.Step != "" || own.Message != "2: even" {
		t.Errorf("the step itself failed with %+v", own)
	}
	group := submitWork(r, task.Chord(task.Group(odd, inc), sum), 2)
	if got := failure(r, group.Future, nil); got.Step != "odd" || got.StepID == "" || got.StepID == group.ID() {
		t.Errorf("the group failed with %+v", got)
	}
}

// testIgnoredByConsumer: a consumer that stores no results reports that to waiting submitters, and
// still passes failures on.
func testIgnoredByConsumer(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		q := c.Queues[queueName]
		q.Meta.IgnoreResult = task.Set(true)
		c.Queues[queueName] = q
	})
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	handle(r, fail, func(context.Context, string) (int, error) { return 0, errBroken })
	r.start()
	f := submit(r, add, pair{1, 2})
	if got := failure(r, f, task.ErrNoResult); !strings.Contains(got.Message, "IgnoreResult") {
		t.Errorf("the submitter is told %q", got.Message)
	}
	if state, err := f.State(r.ctx()); err != nil || state != task.StateSucceeded {
		t.Errorf("its state is %q, %v", state, err)
	}
	if got := failure(r, submit(r, fail, ""), nil); got.Message != errBroken.Error() {
		t.Errorf("the failure is %+v", got)
	}
	// the submitter's option overrides the consumer's
	want(r, submit(r, add, pair{3, 4}, task.WithIgnoreResult(false)), 7)
}

// testStoredElsewhere: the same for a consumer that stores results in another store than the one in
// which the submitter waits.
func testStoredElsewhere(t *testing.T, open Open) {
	elsewhere := memresults.New(memresults.Config{})
	defer func() { _ = elsewhere.Close(context.Background()) }()
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Stores = map[string]resultstore.ResultStore{"archive": elsewhere}
		q := c.Queues[queueName]
		q.Meta.ResultStore = task.Set("archive")
		c.Queues[queueName] = q
	})
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	f := submit(r, add, pair{1, 2})
	if got := failure(r, f, task.ErrNoResult); !strings.Contains(got.Message, `"archive"`) {
		t.Errorf("the submitter is told %q", got.Message)
	}
	if rec, err := elsewhere.Load(r.ctx(), f.ID()); err != nil || rec.State != task.StateSucceeded || rec.Error != nil || len(rec.Result) == 0 {
		t.Errorf("the other store has %+v, %v", rec, err)
	}
}

// shout is a compression that only the producer knows.
type shout struct{}

func (shout) Name() string { return "shout" }
func (shout) Compress(plain []byte) ([]byte, error) {
	return bytes.TrimRight(plain, "!"), nil
}
func (shout) Decompress(data []byte, _ int) ([]byte, error) { return append(data, '!'), nil }

// testUnknownCompression: a task fails with the reason if the consumer cannot decompress its
// arguments. A task whose arguments exceed the consumer's limit when decompressed fails too and
// becomes a dead letter.
func testUnknownCompression(t *testing.T, open Open) {
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Wire.Compression = serializer.Compression{Compressors: []serializer.Compressor{shout{}, compress.S2{}}, Use: "shout", Above: 1}
		c.Wire.Compression.MaxPlain = 900
	})
	size := task.New[[]byte, int]("size", task.WithSerializer(serializer.ContentRaw))
	handle(r, size, func(_ context.Context, b []byte) (int, error) { return len(b), nil })
	r.start()
	loud := append(bytes.Repeat([]byte{'a'}, 100), bytes.Repeat([]byte{'!'}, 900)...)
	if got := failure(r, submit(r, size, loud), task.ErrBadArgs); !strings.Contains(got.Message, "shout") {
		t.Errorf("the submitter is told %q", got.Message)
	}
	f := submit(r, size, loud, task.WithCompression(compress.NameS2))
	if got := failure(r, f, task.ErrBadArgs); !strings.Contains(got.Message, "too large") {
		t.Errorf("the submitter is told %q", got.Message)
	}
	r.wantDead(string(f.ID()), "s2")
}

// testCompressedByDefault: a consumer without configuration reads every compression of this module.
func testCompressedByDefault(t *testing.T, open Open) {
	zstd, err := compress.NewZstd()
	if err != nil {
		t.Fatal(err)
	}
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Wire.Compression = serializer.Compression{Compressors: []serializer.Compressor{zstd, compress.S2{}, &compress.Gzip{}}}
		p.Wire.MaxBody, c.Wire.MaxBody = 4<<10, 4<<10
	})
	runs := atomic.Int64{}
	size := task.New[string, int]("size")
	handle(r, size, func(ctx context.Context, s string) (int, error) {
		if req, _ := task.FromContext(ctx); req.Retries == 0 { // the copy must fit into a message too
			return 0, task.Retry(errBroken, task.After(0))
		}
		runs.Add(1)
		return len(s), nil
	})
	r.start()
	var words strings.Builder
	for chance := uint32(1); words.Len() < 8_000; {
		chance = chance*1664525 + 1013904223
		words.WriteString([]string{"one ", "two ", "three ", "four ", "five "}[(chance>>8)%5])
	}
	for _, name := range []string{compress.NameZstd, compress.NameS2, compress.NameGzip} {
		want(r, submit(r, size, words.String(), task.WithCompression(name)), words.Len())
	}
	if n := runs.Load(); n != 3 {
		t.Errorf("%d tasks ran, want 3", n)
	}
}

// testParkedIsTold: the state of a task that waits for a consumer which knows its name says so.
func testParkedIsTold(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Tuning.UnknownDelay, c.Tuning.UnknownRetries = time.Hour, 5
	})
	r.start()
	f := submit(r, task.New[int, int]("deployed.later"), 1)
	r.eventually("the state says that it was put aside", func() bool {
		state, err := r.producer.Pending(f.ID()).State(r.ctx())
		return err == nil && state == task.StateRetrying
	})
	var text string
	r.eventually("a wait that ends says why", func() bool {
		_, err := r.expired(f.Pending())
		text = err.Error()
		return strings.Contains(text, "parked")
	})
	if !strings.Contains(text, "1 of 5") || !strings.Contains(text, task.ErrUnknownTask.Error()) || !strings.Contains(text, "deployed.later") {
		t.Errorf("it says %q", text)
	}
}
