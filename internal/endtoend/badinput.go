package endtoend

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// testHeaders: Submit refuses headers beyond their limits before it sends a message (bad input 20).
func testHeaders(t *testing.T, open Open) {
	r := newRoad(t, open)
	many := make(map[string]string)
	for i := range 10_000 {
		many[strconv.Itoa(i)] = "x"
	}
	for name, h := range map[string]map[string]string{
		"10,000 entries":  many,
		"a value of 1 MB": {"k": strings.Repeat("v", 1<<20)},
	} {
		c := add.Call(pair{})
		c.Headers = h
		if _, err := r.producer.Submit(r.ctx(), c); !errors.Is(err, serializer.ErrValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]task.Option{
		"priority 2^31":         task.WithPriority(math.MaxInt32 + 1),
		"priority -1":           task.WithPriority(-1),
		"a start in year 9999":  task.WithNotBefore(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)),
		"an expiry in 1900":     task.WithExpires(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)),
		"a negative time limit": task.WithTimeLimit(-1),
	} {
		if _, err := r.producer.Submit(r.ctx(), add.Call(pair{}, o)); !errors.Is(err, task.ErrBadMetadata) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testForgedCounts: numbers out of range in a message are refused or limited, and the task ends
// (bad input 20).
func testForgedCounts(t *testing.T, open Open) {
	m := new(middleware.Metrics)
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { c.Metrics = m })
	seen := make(chan task.Request, 10)
	handle(r, add, func(ctx context.Context, _ pair) (int, error) {
		req, _ := task.FromContext(ctx)
		seen <- *req
		return 0, nil
	})
	r.start()
	want(r, submit(r, add, pair{1, 2}), 0)
	<-seen
	for i, fields := range []string{
		`"retries":-1`, `"retries":9223372036854775808`, `"retries":1e999999999`, `"crashes":-5`, `"headers":{"a":1}`, `"not_before":"someday"`,
	} {
		id := "forged-" + strconv.Itoa(i)
		if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{
			ID: id, Body: []byte(`{"task":"add","args":{"A":1,"B":2},` + fields + `}`), Priority: task.DefaultPriority,
		}); err != nil {
			t.Fatal(err)
		}
		r.eventually(fields+" was buried or run with a number in range", func() bool {
			select {
			case req := <-seen:
				return req.Retries >= 0 && req.Crashes >= 0
			default:
				return r.isDead(id)
			}
		})
	}
	// A time before the first valid one is raised to the first valid one, which has passed.
	if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{
		ID:       "too-late",
		Body:     []byte(`{"task":"add","id":"too-late","args":{"A":1,"B":2},"expires":"1900-01-01T00:00:00Z","reply_to":"` + r.producer.NodeID() + `"}`),
		Priority: task.DefaultPriority,
	}); err != nil {
		t.Fatal(err)
	}
	r.eventually("the expired task is counted", func() bool { return m.Expired.Count() == 1 })
}

// testCompressed: no part of the library decompresses a body that only claims to be compressed. A
// small body that would expand to 256 MiB costs no memory (bad input 9).
func testCompressed(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	want(r, submit(r, add, pair{1, 2}), 3)
	// gzip files appended to each other are one file
	bomb := bytes.Repeat(gzipped(t, make([]byte, 1<<20)), 256)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, body := range [][]byte{bomb, gzipped(t, bomb)} {
		for _, encoding := range []string{"gzip", "zstd", "br, gzip"} {
			id := "bomb-" + strconv.Itoa(i) + encoding[:2]
			if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{
				ID: id, ContentType: serializer.ContentJSON, Properties: map[string]string{"content-encoding": encoding}, Body: body, Priority: task.DefaultPriority,
			}); err != nil {
				t.Fatal(err)
			}
			dead := r.wantDead(id, "")
			if !bytes.Equal(dead.Message.Body, body) || dead.Message.Properties["content-encoding"] != encoding {
				t.Errorf("%s was not kept as it was", id)
			}
		}
	}
	runtime.ReadMemStats(&after)
	// One expanded body costs 256 MiB. Tests that run beside this one allocate too.
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 240<<20 {
		t.Errorf("six small messages cost %d MiB", spent>>20)
	}
	want(r, submit(r, add, pair{1, 2}), 3)
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
