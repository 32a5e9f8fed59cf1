package hworkerbroker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// The numbers refer to the points of hworker's description, in the order of the project's list. The
// consumer's part (H4 to H7) is in consumer_test.go. That all data survives a restart (H2) is in
// the conformance suite.

// stamp is the format of a time in the layout.
var stamp = regexp.MustCompile(`^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"$`)

// old is a start time that every monitor finds too old, and recent returns one that no monitor
// finds too old.
const old = `"2015-07-25T12:00:00.123456Z"`

func recent() string { return time.Now().UTC().Format(`"2006-01-02T15:04:05.000000Z"`) }

func jsonMessage(id, body string) *broker.Message {
	return &broker.Message{ID: id, ContentType: "application/json", Body: []byte(body), Priority: 100}
}

// TestH01AJobOfADeadWorkerRuns shows that a job whose worker died runs if a worker and a monitor
// exist. Promises: H1, H20.
func TestH01AJobOfADeadWorkerRuns(t *testing.T) {
	f := newForeign(t)
	f.push(`["u1",{"n":1}]`)
	if _, took := f.take(recent()); !took {
		t.Fatal("nothing to take")
	}
	d := f.receive(f.subscribe(f.broker(hworkerbroker.Config{Timeout: time.Second}), 1))
	if string(d.Message().Body) != `{"n":1}` {
		t.Fatalf("received %s", d.Message().Body)
	}
}

// TestH03JobsOfAnyProgram shows that jobs of any program arrive, first in first out, whatever
// spaces their payload has. Promises: H3, H9, H10.
func TestH03JobsOfAnyProgram(t *testing.T) {
	f := newForeign(t)
	f.push(`["6f1c0000-0000-4000-8000-000000000001",{"to":"a"}]`, "[ \"x\" ,\n [1, 2.50 ] ]", `["y","text"]`, `["z",null]`, `["t",{"task":"add","id":"task-1","args":[1,2]}]`)
	s := f.subscribe(f.broker(hworkerbroker.Config{}), 0)
	for _, want := range []struct{ id, body string }{
		{"6f1c0000-0000-4000-8000-000000000001", `{"to":"a"}`},
		{"x", `[1, 2.50 ]`},
		{"y", `"text"`},
		{"z", `null`},
		{"task-1", `{"task":"add","id":"task-1","args":[1,2]}`},
	} {
		d := f.receive(s)
		m := d.Message()
		if diff := cmp.Diff(jsonMessage(want.id, want.body), m); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if err := d.Ack(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.keysThere(); n != 0 {
		t.Errorf("%d keys are left after all jobs were done", n)
	}
}

// TestH09PayloadBytes shows that a JSON task of ours has the layout's form in the list, and that
// other programs can run it. Promises: H3, H8, H9.
func TestH09PayloadBytes(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	body := `{"task":"add","id":"task-1","args":{"to":"ü","n":1.50}}`
	for range 2 {
		if err := b.Publish(testwait.Long(t), f.queue, jsonMessage("task-1", body)); err != nil {
			t.Fatal(err)
		}
	}
	list := f.list(f.jobs)
	form := regexp.MustCompile(`^\["[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",` + regexp.QuoteMeta(body) + `\]$`)
	if len(list) != 2 || !form.MatchString(list[0]) || !form.MatchString(list[1]) || list[0] == list[1] {
		t.Fatalf("the list holds %q", list)
	}
	payload, _ := f.take(recent())
	var parts []json.RawMessage
	if err := json.Unmarshal([]byte(payload), &parts); err != nil || string(parts[1]) != body {
		t.Fatalf("another program took %q, %v", payload, err)
	}
	if f.done(payload) != 1 {
		t.Error("its note was not there")
	}
}

// TestH09TheRestOfAMessage shows that the further parts of a message come before the job's own
// members, where other programs ignore them. Promises: H9.
func TestH09TheRestOfAMessage(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	m := jsonMessage("task-1", `{"task":"add","id":"task-1"}`)
	m.Generation, m.Headers = 2, map[string]any{"trace": "x", "n": int64(5), "raw": []byte{1}}
	plain := &broker.Message{ID: "b", ContentType: "text/plain", Body: []byte("hi"), Priority: 100}
	for _, m := range []*broker.Message{m, plain} {
		if err := b.Publish(testwait.Long(t), f.queue, m); err != nil {
			t.Fatal(err)
		}
	}
	list := f.list(f.jobs)
	for i, want := range []string{
		`{"swj":{"generation":2,"headers":{"n":5,"raw":{"bytes":"AQ=="},"trace":"x"}},"task":"add","id":"task-1"}`,
		`{"swj":{"content_type":"text/plain","base64":true},"body":"aGk="}`,
	} {
		if _, job, _ := strings.Cut(list[i], ","); job != want+"]" {
			t.Errorf("job %d is\n%s, want\n%s", i, job, want)
		}
	}
}

// TestH10OrderAndH26Jobs shows that the newest job is at the left, and that Jobs lists it first.
// Jobs that cannot be read are left out. Promises: H10, H26.
func TestH10OrderAndH26Jobs(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	for _, body := range []string{"1", "2"} {
		if err := b.Publish(testwait.Long(t), f.queue, jsonMessage("", body)); err != nil {
			t.Fatal(err)
		}
	}
	f.push("no payload", `{"not":"an array"}`, `["u"]`, `[1,2]`)
	jobs := ok[[]hworkerbroker.Job](t)(b.Jobs(testwait.Long(t), f.queue))
	if len(jobs) != 2 || string(jobs[0].Value) != "2" || string(jobs[1].Value) != "1" || jobs[0].UUID == jobs[1].UUID {
		t.Fatalf("Jobs are %+v, want 2, then 1", jobs)
	}
}

// TestH11TakeAndH13Success shows that a claim notes the payload with the server's time, and that
// Success removes the note. Promises: H11, H13.
func TestH11TakeAndH13Success(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	f.push(`["u1",{"n":1}]`)
	before := ok[time.Time](t)(f.rdb.Time(testwait.Long(t)).Result())
	d := f.receive(f.subscribe(b, 1))
	after := ok[time.Time](t)(f.rdb.Time(testwait.Long(t)).Result())
	notes := f.hash(f.progress)
	start := notes[`["u1",{"n":1}]`]
	at, err := time.Parse(`"2006-01-02T15:04:05.999999Z"`, start)
	if len(notes) != 1 || !stamp.MatchString(start) || err != nil || at.Before(before.Truncate(time.Microsecond)) || at.After(after) {
		t.Fatalf("progress holds %q, taken between %s and %s", notes, before, after)
	}
	if listed := ok[[]hworkerbroker.Noted](t)(b.Progress(testwait.Long(t), f.queue)); len(listed) != 1 || !listed[0].At.Equal(at) {
		t.Errorf("Progress is %+v", listed)
	}
	if err := d.Ack(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	if n := f.keysThere(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// TestH12AnEmptyQueueWritesNothing shows that an empty queue is polled repeatedly without a write.
// (hworker 0.2.0 notes a job "false".) Promises: H12.
func TestH12AnEmptyQueueWritesNothing(t *testing.T) {
	f := newForeign(t)
	s := f.subscribe(f.broker(hworkerbroker.Config{PollEvery: time.Millisecond}), 0)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if d, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("received %v, %v from an empty queue", d, err)
	}
	if n := f.keysThere(); n != 0 {
		t.Fatalf("%d keys are there after looks at an empty queue", n)
	}
	f.push(`["u",1]`)
	f.receive(s)
}

// TestH17LateEndsDoNothing shows that every settlement of a job that a monitor took back changes
// nothing and returns an error. Promises: H13, H17.
func TestH17LateEndsDoNothing(t *testing.T) {
	for name, end := range map[string]func(b broker.Broker, queue string, d broker.Delivery) error{
		"Success": func(_ broker.Broker, _ string, d broker.Delivery) error { return d.Ack(testwait.Long(t)) },
		"Failure": func(_ broker.Broker, _ string, d broker.Delivery) error {
			return d.DeadLetter(testwait.Long(t), broker.Dead{Reason: "x"})
		},
		"give back": func(_ broker.Broker, _ string, d broker.Delivery) error { return d.Release(testwait.Long(t), 0) },
		"Retry": func(b broker.Broker, queue string, d broker.Delivery) error {
			return broker.Replace(testwait.Long(t), b, d, broker.Outgoing{Queue: queue, Message: jsonMessage("", "2")})
		},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/taken again=%t", name, again), func(t *testing.T) {
				f := newForeign(t)
				b := f.broker(hworkerbroker.Config{NoMonitor: true})
				const payload = `["u1",1]`
				f.push(payload)
				s := f.subscribe(b, 1)
				d := f.receive(s)
				if err := s.Close(testwait.Long(t)); err != nil { // this process does not claim it again
					t.Fatal(err)
				}
				if f.done(payload) != 1 { // a monitor does that first
					t.Fatal("there was no note")
				}
				ok[int64](t)(f.rdb.RPush(testwait.Long(t), f.jobs, payload).Result())
				if again { // another worker has the same payload: only the start time differs
					f.take(old)
				}
				jobs, progress := f.list(f.jobs), f.hash(f.progress)
				if err := end(b, f.queue, d); !errors.Is(err, broker.ErrLeaseLost) {
					t.Errorf("got %v, want ErrLeaseLost", err)
				}
				if diff := cmp.Diff([]any{jobs, progress}, []any{f.list(f.jobs), f.hash(f.progress)}); diff != "" {
					t.Errorf("the queue changed:\n%s", diff)
				}
				select {
				case <-d.Lost():
				default:
					t.Error("Lost is open")
				}
				if f.rdb.LLen(testwait.Long(t), f.failed).Val() != 0 {
					t.Error("it is among the failed")
				}
			})
		}
	}
}

// TestH14RetryRunsAfterAllOthers shows that a retried job goes to the back in one step. Jobs from
// the monitor (H20) and released jobs go to the front. Promises: H14.
func TestH14RetryRunsAfterAllOthers(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	f.push(`["a",1]`, `["b",2]`, `["c",3]`)
	s := f.subscribe(b, 1)
	released := false
	order := func() string {
		d := f.receive(s)
		text := string(d.Message().Body)
		if text == "1" && d.Message().Generation == 0 {
			next := jsonMessage("a", "1")
			next.Generation = 1
			if err := broker.Replace(testwait.Long(t), b, d, broker.Outgoing{Queue: f.queue, Message: next}); err != nil {
				t.Fatal(err)
			}
			return text
		}
		if text == "2" && !released {
			released = true
			if err := d.Release(testwait.Long(t), 0); err != nil {
				t.Fatal(err)
			}
			return text
		}
		if err := d.Ack(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
		return text
	}
	var got []string
	for range 5 {
		got = append(got, order())
	}
	if want := []string{"1", "2", "2", "3", "1"}; !slices.Equal(got, want) {
		t.Errorf("ran %v, want %v", got, want)
	}
	// Another program's Retry queues the same bytes again.
	f.push(`["d",4]`, `["e",5]`)
	f.eventually("our subscription has one of them", func() bool { return len(f.list(f.jobs)) == 1 })
	payload, _ := f.take(recent())
	f.retry(payload)
	if l := f.list(f.jobs); len(l) != 1 || l[0] != `["e",5]` {
		t.Errorf("after another program's Retry the queue is %q", l)
	}
}

// TestH15FailuresAreKeptUpToALimit shows that a failed job goes to the front of a limited list,
// byte for byte, and that its reason is only logged. Promises: H15, H16, H24, H25, H27.
func TestH15FailuresAreKeptUpToALimit(t *testing.T) {
	f := newForeign(t)
	log := &logBook{}
	b := f.broker(hworkerbroker.Config{FailedSize: 2, Logger: log.logger()})
	for i := range 4 {
		f.push(fmt.Sprintf(`["u%d", %d ]`, i, i))
	}
	s := f.subscribe(b, 1)
	for range 4 {
		if err := f.receive(s).DeadLetter(testwait.Long(t), broker.Dead{Reason: "mailbox full"}); err != nil {
			t.Fatal(err)
		}
	}
	if l := f.list(f.failed); !slices.Equal(l, []string{`["u2", 2 ]`, `["u3", 3 ]`}) {
		t.Errorf("the failed ones are %q, oldest first", l)
	}
	f.rdb.LPush(testwait.Long(t), f.failed, "unreadable")
	failed := ok[[]hworkerbroker.Job](t)(b.Failed(testwait.Long(t), f.queue))
	if len(failed) != 2 || string(failed[0].Value) != "3" || failed[1].UUID != "u2" {
		t.Errorf("Failed is %+v, want 3, then 2", failed)
	}
	if !log.has("Failure: mailbox full") {
		t.Error("the reason is not logged")
	}
	if n, err := brokertest.Requeue(testwait.Long(t), b, f.queue); n != 3 || err != nil {
		t.Errorf("Requeue = %d, %v", n, err)
	}
	if l, waiting := f.list(f.failed), f.list(f.jobs); len(l) != 0 || !slices.Contains(waiting, "unreadable") {
		t.Errorf("after Requeue the failed ones are %q, and %q wait", l, waiting)
	}
}

// TestH18BrokenJobs shows that jobs that cannot be read are stored with the time, byte for byte,
// and never run. Promises: H18, H19.
func TestH18BrokenJobs(t *testing.T) {
	f := newForeign(t)
	log := &logBook{}
	b := f.broker(hworkerbroker.Config{Logger: log.logger()})
	bad := []string{
		"no payload \x00\xff", `{"a":1}`, `["u"]`, `[1,{"a":1}]`, `["u",{"a":1},{}]`, ``,
		`["u",{"swj":7}]`, `["u",{"swj":{"generation":-1}}]`, `["u",{"swj":{"headers":{"x":null}}}]`, `["u",{"swj":{"base64":true},"body":"%"}]`, `["u",{"swj":{"base64":true}}]`, `["u",]`, `[null,1]`, `["u",1] 2`,
		`["u",` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `]`,
	}
	f.push(bad...)
	f.push(`["good",1]`)
	s := f.subscribe(b, 1)
	if d := f.receive(s); d.Message().ID != "good" {
		t.Fatalf("received %+v", d.Message())
	}
	broken := ok[[]hworkerbroker.Noted](t)(b.Broken(testwait.Long(t), f.queue))
	var got []string
	for _, n := range broken {
		got = append(got, n.Payload)
		if time.Since(n.At).Abs() > time.Minute {
			t.Errorf("%.40q is broken since %v", n.Payload, n.At)
		}
	}
	slices.Sort(got)
	slices.Sort(bad)
	if diff := cmp.Diff(bad, got); diff != "" {
		t.Errorf("-pushed +broken:\n%s", diff)
	}
	for payload, at := range f.hash(f.broken) {
		if !stamp.MatchString(at) {
			t.Errorf("%.40q has the time %q", payload, at)
		}
	}
	if n := len(f.hash(f.progress)); n != 1 || !log.has("cannot be read") {
		t.Errorf("%d jobs are in progress, want the good one; and it should be logged", n)
	}
}

// TestH20MonitorPutsToTheFront shows that a monitor moves jobs that are too old, or whose time it
// cannot read, to the front. Recent jobs stay. Promises: H20, H30.
func TestH20MonitorPutsToTheFront(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{Timeout: time.Hour})
	f.push(`["waits",1]`)
	now := recent()
	for payload, start := range map[string]string{
		`["old",1]`: old, `["short",1]`: `"2015-07-25T12:00:00Z"`, `["pico",1]`: `"2015-07-25T12:00:00.123456789012Z"`,
		`["empty",1]`: "", `["word",1]`: `"yesterday"`, `["null",1]`: "null", `["bare",1]`: "2015-07-25T12:00:00Z",
		`["recent",1]`: now, `["later",1]`: `"2999-01-01T00:00:00.000000Z"`,
		`["no zeros",1]`: now[:len(now)-9] + `Z"`,
	} {
		f.rdb.HSet(testwait.Long(t), f.progress, payload, start)
	}
	f.monitorOnce(b)
	list := f.list(f.jobs)
	if list[len(list)-1] != `["waits",1]` {
		t.Errorf("the one that waits is not the last: %q", list)
	}
	slices.Sort(list)
	if want := []string{`["bare",1]`, `["empty",1]`, `["null",1]`, `["old",1]`, `["pico",1]`, `["short",1]`, `["waits",1]`, `["word",1]`}; !slices.Equal(list, want) {
		t.Errorf("the queue is %q, want %q", list, want)
	}
	if n := len(f.hash(f.progress)); n != 3 {
		t.Errorf("%d are in progress, want 3", n)
	}
}

// monitorOnce runs a monitor for one check.
func (f *foreign) monitorOnce(b *hworkerbroker.Broker) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Monitor(ctx, f.queue) }()
	f.eventually("the monitor's round", func() bool {
		for _, start := range f.hash(f.progress) {
			if start == old {
				return false
			}
		}
		return true
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		f.t.Fatalf("Monitor: %v", err)
	}
}

// TestH21ManyMonitors shows that exactly one of several monitors takes a job back, even from a hash
// that is read in many pages. Promises: H21.
func TestH21ManyMonitors(t *testing.T) {
	f := newForeign(t)
	const n = 2000
	entries := make(map[string]string, n)
	for i := range n {
		entries[fmt.Sprintf(`["u%d",%d]`, i, i)] = old
	}
	f.rdb.HSet(testwait.Long(t), f.progress, entries)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 4 {
		b := f.broker(hworkerbroker.Config{Timeout: time.Second})
		go func() { ended <- b.Monitor(ctx, f.queue) }()
	}
	f.eventually("all are queued again", func() bool { return f.rdb.HLen(testwait.Long(t), f.progress).Val() == 0 })
	cancel()
	for range 4 {
		<-ended
	}
	list := f.list(f.jobs)
	slices.Sort(list)
	if len(slices.Compact(list)) != n || f.rdb.LLen(testwait.Long(t), f.jobs).Val() != n {
		t.Errorf("%d different jobs of %d are queued, want %d", len(slices.Compact(list)), f.rdb.LLen(testwait.Long(t), f.jobs).Val(), n)
	}
}

// TestH22NoMonitorNoTakeBack shows that without a monitor no job is taken back, so a slow worker
// keeps its job. Promises: H22.
func TestH22NoMonitorNoTakeBack(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{Timeout: 100 * time.Millisecond, NoMonitor: true})
	f.push(`["u",1]`)
	f.rdb.HSet(testwait.Long(t), f.progress, `["dead",1]`, old)
	d := f.receive(f.subscribe(b, 0))
	quiet := time.NewTimer(500 * time.Millisecond)
	defer quiet.Stop()
	select {
	case <-d.Lost():
		t.Fatal("it was taken back")
	case <-quiet.C:
	}
	if f.hash(f.progress)[`["dead",1]`] != old {
		t.Error("the dead worker's job was taken back")
	}
	if err := d.Ack(testwait.Long(t)); err != nil {
		t.Errorf("Ack after more than the timeout, with no monitor: %v", err)
	}
}

// TestH23LongJobs shows that without the heartbeat a job longer than the timeout is delivered
// again, and its first delivery is lost. With the heartbeat the job is kept as long as it takes.
// Promises: H23.
func TestH23LongJobs(t *testing.T) {
	t.Run("without the heartbeat", func(t *testing.T) {
		f := newForeign(t)
		b := f.broker(hworkerbroker.Config{Timeout: 300 * time.Millisecond})
		f.push(`["u",1]`)
		s := f.subscribe(b, 0)
		d := f.receive(s)
		again := f.receive(s)
		f.eventually("Lost of the first run", func() bool {
			select {
			case <-d.Lost():
				return true
			default:
				return false
			}
		})
		if err := d.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("Ack of the first run: %v", err)
		}
		if err := again.Ack(testwait.Long(t)); err != nil {
			t.Errorf("Ack of the second run: %v", err)
		}
	})
	t.Run("with the heartbeat", func(t *testing.T) {
		f := newForeign(t)
		b := f.broker(hworkerbroker.Config{Timeout: time.Second, Heartbeat: true})
		other := f.broker(hworkerbroker.Config{Timeout: time.Second})
		f.push(`["u",1]`)
		d := f.receive(f.subscribe(b, 1))
		rival := f.subscribe(other, 1)
		first := f.hash(f.progress)[`["u",1]`]
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		if again, err := rival.Receive(ctx); err == nil {
			t.Fatalf("%s was handed out again", again.Message().Body)
		}
		if now := f.hash(f.progress)[`["u",1]`]; now == first || !stamp.MatchString(now) {
			t.Errorf("the start time went from %s to %s", first, now)
		}
		if err := d.Ack(testwait.Long(t)); err != nil {
			t.Errorf("Ack: %v", err)
		}
	})
}

// TestH28Config shows the defaults, and that all problems are reported together. Promises: H28.
func TestH28Config(t *testing.T) {
	_, err := hworkerbroker.New(hworkerbroker.Config{Timeout: -1, FailedSize: -1, PollEvery: -1, MaxBody: -1})
	for _, part := range []string{"Redis", "timeout", "FailedSize", "PollEvery", "MaxBody"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q: %v", part, err)
		}
	}
}

// TestH28AnExistingClient shows that Config.Client supplies the server's settings. The client
// itself is not used, and may be closed before and after. Promises: H28.
func TestH28AnExistingClient(t *testing.T) {
	f := newForeign(t)
	o := *f.rdb.Options()
	var dials atomic.Int32
	addr := o.Addr
	o.Addr, o.DB = "nowhere.invalid:1", 3
	o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	client := redis.NewClient(&o)
	b, err := hworkerbroker.New(hworkerbroker.Config{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(testwait.Long(t), f.queue, jsonMessage("", "1")); err != nil {
		t.Fatal(err)
	}
	if n := f.rdb.Exists(testwait.Long(t), f.jobs).Val(); n != 0 || dials.Load() == 0 {
		t.Errorf("%d dials; the job is in another database: %t", dials.Load(), n == 0)
	}
	d := f.receive(f.subscribe(b, 1))
	if err := errors.Join(d.Ack(testwait.Long(t)), b.Close(testwait.Long(t))); err != nil {
		t.Error(err)
	}
	if _, err := hworkerbroker.New(hworkerbroker.Config{Client: client, Redis: &redis.UniversalOptions{Addrs: []string{"h:1"}}}); err == nil {
		t.Error("Client and Redis together are taken")
	}
}

// TestH29Destroy shows that Destroy deletes the four keys and no other key. Promises: H29.
func TestH29Destroy(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	f.push(`["u",1]`)
	f.rdb.HSet(testwait.Long(t), f.progress, "p", old)
	f.rdb.HSet(testwait.Long(t), f.broken, "p", old)
	f.rdb.LPush(testwait.Long(t), f.failed, "p")
	f.rdb.Set(testwait.Long(t), "hworker-jobs-"+f.queue+"x", "kept", time.Minute)
	for range 2 {
		if err := b.Destroy(testwait.Long(t), f.queue); err != nil {
			t.Fatal(err)
		}
	}
	if f.keysThere() != 0 || f.rdb.Exists(testwait.Long(t), "hworker-jobs-"+f.queue+"x").Val() != 1 {
		t.Error("not the four keys were deleted")
	}
}

// TestH30Debug shows that Debug writes the waiting jobs and the jobs in progress repeatedly.
// Promises: H30.
func TestH30Debug(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	f.push(`["waits",1]`)
	f.rdb.HSet(testwait.Long(t), f.progress, `["runs",1]`, old)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &stopper{after: 3, stop: cancel}
	if err := b.Debug(ctx, f.queue, time.Millisecond, w); err != nil && !errors.Is(err, broker.ErrUnavailable) {
		t.Fatal(err)
	}
	for _, part := range []string{"waits", "runs", "2015-07-25"} {
		if strings.Count(w.String(), part) < 3 {
			t.Errorf("%q is not written each time:\n%s", part, w.String())
		}
	}
}

// stopper is a writer that calls stop after some writes.
type stopper struct {
	bytes.Buffer
	after int
	stop  func()
}

func (s *stopper) Write(p []byte) (int, error) {
	if s.after--; s.after == 0 {
		s.stop()
	}
	return s.Buffer.Write(p)
}

// TestEqualPayloadsRunOneAfterTheOther shows that two equal payloads of another program share one
// note, run one after the other, and are settled separately.
func TestEqualPayloadsRunOneAfterTheOther(t *testing.T) {
	f := newForeign(t)
	const payload = `["same",{"n":1}]`
	f.push(payload, `["other",2]`, payload)
	alone := f.subscribe(f.broker(hworkerbroker.Config{}), 1)
	first := f.receive(alone)
	if err := alone.Close(testwait.Long(t)); err != nil { // it must not claim the other one
		t.Fatal(err)
	}
	s := f.subscribe(f.broker(hworkerbroker.Config{}), 0)
	if d := f.receive(s); string(d.Message().Body) != "2" {
		t.Fatalf("received %s beside its equal", d.Message().Body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if d, err := s.Receive(ctx); err == nil {
		t.Fatalf("received %s beside its equal", d.Message().Body)
	}
	if err := first.Ack(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	second := f.receive(s)
	if string(second.Message().Body) != `{"n":1}` {
		t.Fatalf("received %s", second.Message().Body)
	}
	if err := second.Ack(testwait.Long(t)); err != nil {
		t.Errorf("Ack of the second: %v", err)
	}
}

// TestWhatALayoutWithoutTimesRefuses shows that messages that four keys cannot hold are refused
// with a reason.
func TestWhatALayoutWithoutTimesRefuses(t *testing.T) {
	f := newForeign(t)
	b := f.broker(hworkerbroker.Config{})
	expiring := jsonMessage("a", "1")
	expiring.Expires = time.Now().Add(time.Hour)
	err := b.Publish(testwait.Long(t), f.queue, expiring)
	if !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expiry: %v", err)
	}
	err = b.PublishBatch(testwait.Long(t), []broker.Outgoing{
		{Queue: f.queue, Message: jsonMessage("a", "1"), At: time.Now().Add(time.Hour)}, {Queue: f.queue, Message: jsonMessage("b", "2")},
	})
	errs := broker.BatchErrors(err, 2)
	if !errors.Is(errs[0], broker.ErrUnsupported) || errs[1] != nil {
		t.Errorf("a delay in a batch: %v", err)
	}
	if err := broker.Declare(testwait.Long(t), b, broker.Queue{Name: f.queue, Levels: []int{1, 100}}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("levels: %v", err)
	}
	d := f.receive(f.subscribe(b, 1))
	if err := d.Release(testwait.Long(t), time.Second); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("Release for a second: %v", err)
	}
	if err := d.Ack(testwait.Long(t)); err != nil {
		t.Errorf("Ack after a Release that was refused: %v", err)
	}
	// A copy of a task whose own program set an expiry keeps it: the consumer checks it.
	expiring.Generation = 1
	if err := b.Publish(testwait.Long(t), f.queue, expiring); err != nil {
		t.Errorf("a copy with an expiry: %v", err)
	}
}

// TestStampsAcrossTheCalendar shows that the times of the scripts are right on unusual days of the
// calendar.
func TestStampsAcrossTheCalendar(t *testing.T) {
	f := newForeign(t)
	source := hworkerbroker.StampLua + "\nreturn stamp(tonumber(ARGV[1]), tonumber(ARGV[2]))"
	at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	for ; at.Year() < 2110; at = at.Add(71*time.Hour + 13*time.Minute + 7*time.Second + 11*time.Microsecond) {
		got := ok[string](t)(f.rdb.Eval(testwait.Long(t), source, nil, at.Unix(), at.Nanosecond()/1000).Text())
		if want := at.Format(`"2006-01-02T15:04:05.000000Z"`); got != want {
			t.Fatalf("%s is written as %s", want, got)
		}
	}
}
