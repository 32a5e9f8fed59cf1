package endtoend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
	"github.com/swarmiji/swarmiji/task"
)

// keyRing returns a sealer that seals with the key named active and opens with all named keys. A
// name that begins with "sign" names a key that only signs.
func keyRing(t *testing.T, active string, opening ...string) serializer.Sealer {
	t.Helper()
	key := func(name string) serializer.Key {
		secret := sha256.Sum256([]byte(name))
		return serializer.Key{ID: name, Secret: secret[:], SignOnly: strings.HasPrefix(name, "sign")}
	}
	var others []serializer.Key
	for _, name := range opening {
		others = append(others, key(name))
	}
	ring, err := serializer.NewKeyRing(key(active), others...)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// testSealed: a sealed task is retried, followed by its successors and answered, and its failure
// arrives complete. A plain task, or one that was sealed for another task, becomes a dead letter.
// The dead letters of sealed tasks show none of their content.
func testSealed(t *testing.T, open Open) {
	m := new(middleware.Metrics)
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Wire.Sealer, c.Wire.Sealer = keyRing(t, "k1"), keyRing(t, "k1")
		c.Tuning.UnknownRetries, c.Metrics = -1, m
	})
	join := task.New[[]string, string]("join")
	handle(r, join, func(ctx context.Context, parts []string) (string, error) {
		if req, _ := task.FromContext(ctx); req.Retries < 2 && req.ID == "joined" {
			return "", task.Retry(errBroken, task.After(0))
		}
		return strings.Join(parts, " "), nil
	})
	echo := task.New[string, string]("echo")
	handle(r, echo, func(ctx context.Context, s string) (string, error) {
		if req, _ := task.FromContext(ctx); req.Retries == 0 {
			return "", task.Retry(errBroken, task.After(0))
		}
		return s, nil
	})
	handle(r, fail, func(_ context.Context, s string) (int, error) { return 0, errors.New("broken: " + s) })
	r.start()

	list, contentType := serialized(t, []string{"second words"})
	c := echo.Call("first words")
	c.Then = []task.Link{{ID: "joined", Name: "join", Feed: task.FeedPrepend, Args: list, ContentType: contentType}}
	first := task.FutureOf[string](r.submit(c))
	want(r, first, "first words")
	if stored := r.pendingElsewhere("joined", keyRing(t, "k2", "k1")); stored != nil {
		want(r, task.FutureOf[string](stored), "first words second words")
	}
	if got := failure(r, submit(r, fail, "the reason"), nil); got.Message != "broken: the reason" {
		t.Errorf("the failure is %+v", got)
	}
	if r.h.NoQueues {
		return
	}

	const secret = "not for everybody"
	p := r.submit(task.New[string, string]("nobody").Call(secret))
	sealed := r.wantDead(string(p.ID()), "no handler").Message
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	if bytes.Contains(sealed.Body, []byte(secret)) || bytes.Contains(sealed.Body, []byte(encoded[:16])) {
		t.Errorf("the arguments can be read in %q", sealed.Body)
	}
	moved := *sealed
	moved.ID, moved.Generation = "moved", 0
	moved.Body = bytes.Replace(moved.Body, []byte("nobody"), []byte("no-one"), 1)
	plain := broker.Message{ID: "plain", Body: []byte(`{"task":"echo","id":"plain","args":"let me in"}`)}
	for _, m := range []*broker.Message{&moved, &plain} {
		m.Priority = task.DefaultPriority
		if err := r.broker.Publish(r.ctx(), queueName, m); err != nil {
			t.Fatal(err)
		}
	}
	r.wantDead("plain", "not sealed")
	r.wantDead("moved", "seal is broken")
	r.eventually("the failed task and these three are dead letters", func() bool { return m.DeadLettered.Count() == 4 })
}

// testSealedWorkflow: steps, groups and their successors are each sealed separately, also in the
// state of a group that the store holds. A member that was exchanged for another fails the group.
func testSealedWorkflow(t *testing.T, open Open) {
	swapped := &swapping{}
	r := newWorks(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Wire.Sealer, c.Wire.Sealer = keyRing(t, "k1"), keyRing(t, "k1")
		swapped.Gatherer = resultstore.GathererOf(c.Gatherer, c.Results)
		p.Gatherer, c.Gatherer = swapped, swapped
	})
	r.start()
	group := task.Group(inc, task.Chain(inc, inc), inc)
	wantWork(r, group, 1, []int{2, 3, 2})
	wantWork(r, task.Chain(task.Chord(group, sum), text), 1, "no 7")
	wantWork(r, task.Chord(task.Map(odd).IgnoreFailures(), sum), []int{1, 2, 3}, 4)
	wantEven(r, task.Chord(task.Map(odd), sum), []int{1, 2, 3}, "2: even")
	swapped.on.Store(true)
	run := submitWork(r, task.Chord(task.Map(inc), sum), []int{1, 2, 3})
	if got := failure(r, run.Future, nil); !contains(got.Message, "seal is broken") {
		t.Errorf("the group failed with %+v", got)
	}
}

// swapping is a gatherer that exchanges the first two members of a group.
type swapping struct {
	resultstore.Gatherer
	on atomic.Bool
}

func (s *swapping) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	page, err := s.Gatherer.Members(ctx, group, from, limit)
	if s.on.Load() && len(page) > 1 {
		page[0], page[1] = page[1], page[0]
	}
	return page, err
}

// serialized encodes arguments in the format that needs no configuration.
func serialized(t *testing.T, v any) ([]byte, string) {
	t.Helper()
	data, err := serializer.JSON{}.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data, serializer.ContentJSON
}

// pendingElsewhere returns the handle that another process has of a task. It returns nil if the
// store replies only to the submitter.
func (r *road) pendingElsewhere(id task.ID, ring serializer.Sealer) task.Pending {
	r.t.Helper()
	results := r.h.Results(r.t)
	other, err := producer.New(producer.Config{Broker: r.broker, Results: results, Wire: serializer.Wire{Sealer: ring}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.h.Patience)
		defer cancel()
		if err := errors.Join(other.Close(ctx), results.Close(ctx)); err != nil {
			r.t.Error(err)
		}
	})
	if resultstore.RepliesOnly(results) {
		return nil
	}
	return other.Pending(id)
}

// testKeyRotation: tasks that wait during a change of keys run under the new key, and their
// submitter can read their results. A task whose key was removed too early becomes a dead letter
// and can be read there with the key.
func testKeyRotation(t *testing.T, open Open) {
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Wire.Sealer = keyRing(t, "old", "sign-new") // the new key is known, but not used yet
		c.Wire.Sealer = keyRing(t, "sign-new", "old")
	})
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		if req, _ := task.FromContext(ctx); req.Retries == 0 {
			return 0, task.Retry(errBroken, task.After(0))
		}
		return 2 * i, nil
	})
	var queued []*task.Future[int]
	for i := range 5 {
		queued = append(queued, submit(r, work, i))
	}
	other, err := producer.New(producer.Config{Broker: r.broker, Router: queueRouter{}, Wire: serializer.Wire{Sealer: keyRing(t, "forgotten")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := other.Submit(r.ctx(), work.Call(1, task.WithID("unknown-key"), task.WithIgnoreResult(true))); err != nil {
		t.Fatal(err)
	}
	r.start()
	for i, f := range queued {
		want(r, f, 2*i)
	}
	r.wantDead("unknown-key", "unknown key")
}

// testCompressedRoad: large arguments and results arrive complete, also through a retry, even where
// uncompressed they would not fit into a message.
func testCompressedRoad(t *testing.T, open Open) {
	zstd, err := compress.NewZstd()
	if err != nil {
		t.Fatal(err)
	}
	compression := serializer.Compression{Compressors: []serializer.Compressor{zstd, compress.S2{}, &compress.Gzip{}}, Use: compress.NameZstd}
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Wire.Compression, p.Wire.MaxBody = compression, 16<<10
		c.Wire.Compression, c.Wire.MaxBody = compression, 16<<10
		c.Wire.Compression.Use = ""
	})
	double := task.New[string, string]("double")
	ran := make(chan string, 10)
	handle(r, double, func(ctx context.Context, s string) (string, error) {
		if req, _ := task.FromContext(ctx); req.Retries == 0 {
			return "", task.Retry(errBroken, task.After(0))
		}
		if len(s) < 100 {
			ran <- s
		}
		return s + s, nil
	})
	r.start()
	var text strings.Builder
	for chance := uint32(1); text.Len() < 40_000; {
		chance = chance*1664525 + 1013904223
		text.WriteString([]string{"one and ", "two and ", "three and ", "four and ", "five and "}[(chance>>8)%5])
	}
	for _, opts := range [][]task.Option{nil, {task.WithCompression(compress.NameS2)}} {
		want(r, submit(r, double, text.String(), opts...), text.String()+text.String())
	}
	if _, err := r.producer.Submit(r.ctx(), double.Call(text.String(), task.WithCompression(""))); !errors.Is(err, broker.ErrTooLarge) {
		t.Errorf("not compressed: %v", err)
	}
	if _, err := r.producer.Submit(r.ctx(), double.Call("", task.WithCompression("br"))); !errors.Is(err, task.ErrBadMetadata) {
		t.Errorf("compressed with what is not there: %v", err)
	}
	if !r.h.NoQueues {
		r.foreignCompressed(ran)
	}
}

// foreignCompressed: a message that another program compressed as a whole runs, also after a retry.
// A message that would become too large does not.
func (r *road) foreignCompressed(ran <-chan string) {
	r.t.Helper()
	for id, body := range map[string][]byte{
		"foreign": gzipped(r.t, []byte(`{"task":"double","args":"squeezed","correlation":"`+strings.Repeat("some words ", 50)+`"}`)),
		"bomb":    gzipped(r.t, append([]byte(`{"task":"double","args":"bomb"}`), bytes.Repeat([]byte(" "), 1<<20)...)),
	} {
		if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{
			ID: id, ContentType: serializer.ContentJSON, Properties: map[string]string{"content-encoding": "gzip"}, Body: body, Priority: task.DefaultPriority,
		}); err != nil {
			r.t.Fatal(err)
		}
	}
	select {
	case got := <-ran:
		if got != "squeezed" {
			r.t.Errorf("the foreign task got %q", got)
		}
	case <-r.ctx().Done():
		r.t.Fatal("the foreign task did not run")
	}
	r.wantDead("bomb", "too large")
}
