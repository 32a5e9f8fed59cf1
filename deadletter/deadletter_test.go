package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const queue = "work"

// desk is a broker with dead letters and a result store.
type desk struct {
	t       *testing.T
	broker  *membroker.Broker
	results *memresults.Store
	letters *deadletter.Letters
}

func newDesk(t *testing.T, change ...func(*deadletter.Config)) *desk {
	t.Helper()
	d := &desk{t: t, broker: membroker.New(), results: memresults.New(memresults.Config{})}
	c := deadletter.Config{Broker: d.broker, Results: d.results}
	for _, f := range change {
		f(&c)
	}
	var err error
	if d.letters, err = deadletter.New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.broker.Close(context.Background()), d.results.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	if err := d.broker.Declare(t.Context(), broker.Queue{Name: queue}); err != nil {
		t.Fatal(err)
	}
	return d
}

// put dead-letters a task.
func (d *desk) put(e *task.Envelope, dead broker.Dead) {
	d.t.Helper()
	m, err := serializer.JSONFormat{}.Encode(e)
	if err != nil {
		d.t.Fatal(err)
	}
	dead.Message = m
	d.putMessage(dead)
}

func (d *desk) putMessage(dead broker.Dead) {
	d.t.Helper()
	if err := d.broker.PutDead(d.t.Context(), queue, dead); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) ids(f deadletter.Filter) (ids []string) {
	d.t.Helper()
	if err := d.letters.List(d.t.Context(), queue, f, func(l *deadletter.Letter) bool {
		ids = append(ids, string(l.ID))
		return true
	}); err != nil {
		d.t.Fatal(err)
	}
	return ids
}

func simple(id task.ID, name string) *task.Envelope {
	return &task.Envelope{ID: id, Name: name, ContentType: serializer.ContentJSON, Args: []byte(`{"n":1}`)}
}

func TestFilter(t *testing.T) {
	d := newDesk(t)
	now := time.Now()
	for i, name := range []string{"mail.send", "mail.read", "report"} {
		d.put(simple(task.ID(fmt.Sprint("t", i)), name), broker.Dead{Reason: "error " + fmt.Sprint(i%2), At: now.Add(time.Duration(i-3) * time.Hour)})
	}
	d.putMessage(broker.Dead{Message: &broker.Message{ID: "raw", ContentType: "image/x-none", Body: []byte{0xff}, Headers: map[string]any{serializer.EnvelopeHeader: true}}, Reason: "unreadable", At: now})
	for _, c := range []struct {
		f    deadletter.Filter
		want string
	}{
		{deadletter.Filter{}, "t0 t1 t2 raw"},
		{deadletter.Filter{IDs: []task.ID{"t2", "t0", "none"}}, "t0 t2"},
		{deadletter.Filter{IDs: []task.ID{}}, ""},
		{deadletter.Filter{Task: "mail.*"}, "t0 t1"},
		{deadletter.Filter{Task: "report"}, "t2"},
		{deadletter.Filter{Error: "error 0"}, "t0 t2"},
		{deadletter.Filter{OlderThan: 90 * time.Minute}, "t0 t1"},
		{deadletter.Filter{YoungerThan: 150 * time.Minute}, "t1 t2 raw"},
		{deadletter.Filter{Limit: 2}, "t0 t1"},
		{deadletter.Filter{Task: "*", Error: "error 0", OlderThan: 90 * time.Minute}, "t0"},
	} {
		if got := strings.Join(d.ids(c.f), " "); got != c.want {
			t.Errorf("%+v takes %q, want %q", c.f, got, c.want)
		}
	}
	for _, f := range []deadletter.Filter{{OlderThan: -1}, {YoungerThan: -1}, {Limit: -1}} {
		if err := d.letters.List(t.Context(), queue, f, nil); !errors.Is(err, deadletter.ErrFilter) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if err := d.letters.List(t.Context(), queue, deadletter.Filter{IDs: []task.ID{"a b"}}, nil); !errors.Is(err, task.ErrBadID) {
		t.Errorf("a bad id: %v", err)
	}
	if err := d.letters.List(t.Context(), "no queue", deadletter.Filter{}, nil); !errors.Is(err, task.ErrBadName) {
		t.Errorf("a bad queue: %v", err)
	}
	if n, err := d.letters.Drop(t.Context(), queue, deadletter.Filter{Task: "mail.*"}); n != 2 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	if got := strings.Join(d.ids(deadletter.Filter{}), " "); got != "t2 raw" {
		t.Errorf("after a drop: %s", got)
	}
	if n, err := d.letters.Drop(t.Context(), queue, deadletter.Filter{}); n != 2 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
}

func TestRequeueReports(t *testing.T) {
	d := newDesk(t)
	at := broker.Dead{Reason: "no"}
	conditions := simple("conditions", "a")
	conditions.Headers = map[string]string{task.HeaderConditions: "conditions"}
	member := simple("member", "a")
	member.Group, member.GroupSize, member.Chord = "g", 2, &task.Link{Name: "sum"}
	waiting := simple("waiting", "a")
	waiting.Group, waiting.GroupIndex, waiting.GroupSize, waiting.Chord = "g", 1, 2, &task.Link{Name: "sum"}
	elsewhere := simple("elsewhere", "a")
	elsewhere.Meta.ResultStore = task.Set("archive")
	ignored := simple("ignored", "a")
	ignored.Meta.IgnoreResult = task.Set(true)
	for _, e := range []*task.Envelope{conditions, member, waiting, elsewhere, ignored, simple("plain", "a"), simple("twice", "a"), simple("twice", "a"), simple("revoked", "a")} {
		d.put(e, at)
	}
	if _, err := d.results.Arrive(t.Context(), resultstore.Arrival{Group: "g", Size: 2, Record: resultstore.Record{ID: "member", State: task.StateFailed}}); err != nil {
		t.Fatal(err)
	}
	if err := d.results.Save(t.Context(), resultstore.Record{ID: "revoked", State: task.StateRevoked, Deliveries: 1}); err != nil {
		t.Fatal(err)
	}
	r, err := d.letters.Requeue(t.Context(), queue, deadletter.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, p := range r.Problems {
		refused = append(refused, string(p.ID)+": "+p.Reason)
	}
	if diff := cmp.Diff([]string{
		"conditions: a task with conditions is sent by its job, which has ended; submit it again",
		"member: group g has counted its end; retry the workflow (Letters.Retry, swarmiji workflow retry), or submit it again",
		"elsewhere: its results are in store archive, which is not configured here",
		"revoked: the task has ended: revoked",
	}, refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if r.Done+r.Already != 5 || r.Refused != 4 || r.Unfenced != 1 {
		t.Errorf("report %+v", r)
	}
	if got := strings.Join(d.ids(deadletter.Filter{}), " "); got != "conditions member elsewhere revoked" {
		t.Errorf("left are %s", got)
	}
	s, err := d.broker.Stats(t.Context(), queue)
	if err != nil || s.Ready != 4 {
		t.Errorf("in the queue: %+v, %v; want 4, of which one was lettered twice", s, err)
	}
	// A letter of the old life does not begin a new life that has begun already.
	if err := d.results.Save(t.Context(), resultstore.Record{ID: "plain", State: task.StateStarted, Generation: wire.FirstGeneration(1), Deliveries: 1, Life: 1}); err != nil {
		t.Fatal(err)
	}
	d.put(simple("plain", "a"), at)
	if r, err := d.letters.Requeue(t.Context(), queue, deadletter.Filter{IDs: []task.ID{"plain"}}); err != nil || r.Already != 1 || r.Done != 0 {
		t.Errorf("a letter of the old life: %+v, %v", r, err)
	}
	// Without a gatherer the state of groups is unknown.
	lonely, err := deadletter.New(deadletter.Config{Broker: d.broker})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := lonely.Requeue(t.Context(), queue, deadletter.Filter{IDs: []task.ID{"member"}}); err != nil || r.Refused != 1 {
		t.Errorf("without a gatherer: %+v, %v", r, err)
	}
	// An older group may be forgotten.
	old := simple("old", "a")
	old.Group, old.GroupIndex, old.GroupSize, old.Chord = "h", 1, 2, &task.Link{Name: "sum"}
	d.put(old, broker.Dead{Reason: "no", At: time.Now().Add(-25 * time.Hour)})
	if r, err := d.letters.Requeue(t.Context(), queue, deadletter.Filter{IDs: []task.ID{"old"}}); err != nil || r.Refused != 1 {
		t.Errorf("an old group: %+v, %v", r, err)
	}
}

// TestUnreadable shows that an unreadable message is requeued unchanged, and from the old queue of
// suspects into the queue itself.
func TestUnreadable(t *testing.T) {
	d := newDesk(t)
	body := []byte(`{"task": "a", "task": "b"}`)
	m := &broker.Message{ID: "m-1", ContentType: "application/json", Body: body, Priority: 7, Key: "k", Weight: 3, Expires: time.Now().Add(-time.Hour), Properties: map[string]string{"expiration": "5", "type": "x"}}
	if err := d.broker.PutDead(t.Context(), queue+".suspects", broker.Dead{Message: m, Reason: "twice"}); err != nil {
		t.Fatal(err)
	}
	r, err := d.letters.Requeue(t.Context(), queue+".suspects", deadletter.Filter{})
	if err != nil || r.Done != 1 || r.Unfenced != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	sub, err := d.broker.Subscribe(t.Context(), queue, broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := sub.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := got.Message()
	if !bytes.Equal(n.Body, body) || n.Generation != wire.FirstGeneration(1) || wire.Life(n) != 1 || n.Priority != 7 || n.Key != "k" || n.Weight != 3 || !n.Expires.IsZero() ||
		n.Properties["expiration"] != "" || n.Properties["type"] != "x" {
		t.Errorf("it came back as %+v", n)
	}
	if err := errors.Join(got.Ack(t.Context()), sub.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestExportAndImport(t *testing.T) {
	d := newDesk(t)
	// A letter of 30 days ago would be gone.
	at := time.Now().UTC().Truncate(time.Second).AddDate(0, 0, -10)
	d.put(simple("a", "mail"), broker.Dead{Reason: `quote " and <tag>`, Stack: "goroutine 1\nmain", Attempts: 4, At: at})
	d.putMessage(broker.Dead{
		Message: &broker.Message{ID: "b", Generation: 3, ContentType: "x/y", Body: []byte{0, 255}, Key: "k", Weight: 3, Headers: map[string]any{"n": int64(5)}, Priority: 100}, Reason: "r", At: at,
	})
	var file bytes.Buffer
	if n, err := d.letters.Export(t.Context(), queue, deadletter.Filter{}, &file); n != 2 || err != nil {
		t.Fatalf("exported %d, %v", n, err)
	}
	first, _, _ := strings.Cut(file.String(), "\n")
	// Lines of version 1 can be read for ever.
	golden := `{"swarmiji_dead":1,"queue":"work","reason":"quote \" and <tag>","stack":"goroutine 1\nmain","attempts":4,"at":"` + at.Format(time.RFC3339) + `",` +
		`"message":{"v":1,"id":"a","contentType":"application/json","body":"eyJ0YXNrIjoibWFpbCIsImlkIjoiYSIsImFyZ3MiOnsibiI6MX19","priority":100}}`
	if first != golden {
		t.Errorf("a letter is written as\n%s\nwant\n%s", first, golden)
	}
	before, err := broker.ListDead(t.Context(), d.broker, queue, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.letters.Drop(t.Context(), queue, deadletter.Filter{}); err != nil {
		t.Fatal(err)
	}
	if n, err := d.letters.Import(t.Context(), "", strings.NewReader(file.String()+"\n\n")); n != 2 || err != nil {
		t.Fatalf("imported %d, %v", n, err)
	}
	after, err := broker.ListDead(t.Context(), d.broker, queue, 10)
	if err != nil {
		t.Fatal(err)
	}
	for i := range after { // an old letter would be removed at once by its age
		if time.Since(after[i].At) > time.Hour {
			t.Errorf("the imported letter is from %v", after[i].At)
		}
		after[i].At = before[i].At
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("letters changed (-before +after):\n%s", diff)
	}
	for text, want := range map[string]string{
		"{}":                  "line 1",
		golden + "\nnot JSON": "line 2",
		`{"swarmiji_dead":2}`: "version is 2",
		`{"swarmiji_dead":1}`: "no message",
		strings.Replace(golden, `"work"`, `"no queue"`, 1):                     "bad name",
		strings.Replace(golden, `"attempts":4`, `"attempts":-4`, 1):            "negative",
		strings.Replace(golden, `"priority"`, `"generation":-1,"priority"`, 1): "negative",
	} {
		if _, err := d.letters.Import(t.Context(), "", strings.NewReader(text)); !errors.Is(err, deadletter.ErrMalformed) || !strings.Contains(err.Error(), want) && want != "bad name" {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	if n, err := d.letters.Import(t.Context(), "other", strings.NewReader(golden)); n != 1 || err != nil {
		t.Errorf("imported %d, %v", n, err)
	}
}

func TestNew(t *testing.T) {
	if _, err := deadletter.New(deadletter.Config{}); err == nil {
		t.Error("made without a broker")
	}
	if _, err := deadletter.New(deadletter.Config{Broker: struct{ broker.Broker }{membroker.New()}}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("a broker without dead letters: %v", err)
	}
}

// TestLimitPassesOverRefused shows that refused letters, which stay at the front, do not use up the
// limit of each call.
func TestLimitPassesOverRefused(t *testing.T) {
	d := newDesk(t)
	for i := range 5 {
		e := simple(task.ID(fmt.Sprint("refused-", i)), "job")
		e.Headers = map[string]string{task.HeaderConditions: string(e.ID)}
		d.put(e, broker.Dead{Reason: "why"})
	}
	for i := range 4 {
		d.put(simple(task.ID(fmt.Sprint("t", i)), "mail"), broker.Dead{Reason: "why"})
	}
	for range 2 {
		got, err := d.letters.Requeue(t.Context(), queue, deadletter.Filter{Limit: 2})
		if err != nil || got.Done != 2 || got.Refused != 5 {
			t.Errorf("report %+v, %v", got, err)
		}
	}
}

// TestImportedMember shows that the age of a group counts for an imported letter, which is younger
// than the group.
func TestImportedMember(t *testing.T) {
	d := newDesk(t)
	e := simple("m", "mail")
	e.Group, e.GroupSize, e.SentAt = "g", 3, time.Now().Add(-49*time.Hour)
	d.put(e, broker.Dead{Reason: "why", At: time.Now().Add(-48 * time.Hour)})
	var file bytes.Buffer
	if n, err := d.letters.Export(t.Context(), queue, deadletter.Filter{}, &file); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := d.letters.Drop(t.Context(), queue, deadletter.Filter{}); err != nil {
		t.Fatal(err)
	}
	if n, err := d.letters.Import(t.Context(), "", &file); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	got, err := d.letters.Requeue(t.Context(), queue, deadletter.Filter{})
	if err != nil || got.Refused != 1 || got.Done != 0 {
		t.Errorf("report %+v, %v", got, err)
	}
}

// timeless is a broker without the times of dead letters, as hworker's failed list.
type timeless struct{ *membroker.Broker }

func (b timeless) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	return b.Broker.ScanDead(ctx, queue, func(d *broker.Dead) broker.DeadAction {
		d.At = time.Time{}
		return fn(d)
	})
}

// TestAgeOfALetterWithoutATime shows that a letter without a time matches no age. Dropping letters
// older than 30 days must not drop one of a second ago.
func TestAgeOfALetterWithoutATime(t *testing.T) {
	d := newDesk(t)
	letters, err := deadletter.New(deadletter.Config{Broker: timeless{d.broker}, Results: d.results})
	if err != nil {
		t.Fatal(err)
	}
	d.put(simple("a", "mail"), broker.Dead{Reason: "r"})
	if n, err := letters.Drop(t.Context(), queue, deadletter.Filter{OlderThan: 720 * time.Hour}); n != 0 || err != nil {
		t.Errorf("dropped %d letters of unknown age, %v", n, err)
	}
}
