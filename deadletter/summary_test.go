package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/task"
)

func TestSummarize(t *testing.T) {
	d := newDesk(t)
	at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	bytes := int64(0)
	for i, name := range []string{"mail.send", "mail.send", "report", "mail.read"} {
		e := simple(task.ID(fmt.Sprint("t", i)), name)
		d.put(e, broker.Dead{Reason: strings.Repeat("x", 150*(i%2)) + "timeout", At: at.Add(time.Duration(i) * time.Minute)})
	}
	if err := d.letters.List(t.Context(), queue, deadletter.Filter{}, func(l *deadletter.Letter) bool {
		bytes += int64(len(l.Message.Body))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	s, err := d.letters.Summarize(t.Context(), queue, deadletter.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(deadletter.Summary{
		Letters: 4, Bytes: bytes, Oldest: at, Newest: at.Add(3 * time.Minute),
		Tasks:   map[string]int{"mail.send": 2, "report": 1, "mail.read": 1},
		Reasons: map[string]int{"timeout": 2, strings.Repeat("x", 120): 2},
	}, s); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for limit, more := range map[int]bool{1: true, 3: true, 4: false, 5: false} {
		s, err := d.letters.Summarize(t.Context(), queue, deadletter.Filter{Limit: limit})
		if err != nil || s.More != more || s.Letters != min(limit, 4) {
			t.Errorf("with the limit %d: %d letters, more %t, %v", limit, s.Letters, s.More, err)
		}
	}
	if got := len(d.ids(deadletter.Filter{})); got != 4 {
		t.Errorf("%d letters are left", got)
	}
	if _, err := d.letters.Summarize(t.Context(), "nobody", deadletter.Filter{}); !errors.Is(err, broker.ErrNoQueue) {
		t.Errorf("a queue that does not exist: %v", err)
	}
}

// TestSummaryIsBounded shows that a summary counts at most MaxKinds kinds by name.
func TestSummaryIsBounded(t *testing.T) {
	d := newDesk(t)
	for i := range deadletter.MaxKinds + 20 {
		d.put(simple(task.ID(fmt.Sprint("t", i)), fmt.Sprint("task-", i)), broker.Dead{Reason: fmt.Sprint("reason ", i)})
	}
	s, err := d.letters.Summarize(t.Context(), queue, deadletter.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for what, kinds := range map[string]map[string]int{"tasks": s.Tasks, "reasons": s.Reasons} {
		if len(kinds) != deadletter.MaxKinds+1 || kinds["other"] != 20 {
			t.Errorf("%d %s, %d other", len(kinds), what, kinds["other"])
		}
	}
}

func TestHeaderFilter(t *testing.T) {
	d := newDesk(t)
	for id, headers := range map[task.ID]map[string]string{"a": {"tenant": "42", "region": "eu"}, "b": {"tenant": "4"}, "c": nil} {
		e := simple(id, "mail")
		e.Headers = headers
		d.put(e, broker.Dead{Reason: "why"})
	}
	d.putMessage(broker.Dead{Message: &broker.Message{ID: "raw", ContentType: "application/json", Body: []byte("{")}})
	for _, c := range []struct {
		headers map[string]string
		want    string
	}{
		{map[string]string{"tenant": "42"}, "a"},
		{map[string]string{"tenant": "42", "region": "eu"}, "a"},
		{map[string]string{"tenant": "42", "region": "us"}, ""},
		{map[string]string{"tenant": ""}, ""},
		{map[string]string{"absent": ""}, ""},
	} {
		if got := strings.Join(d.ids(deadletter.Filter{Headers: c.headers}), " "); got != c.want {
			t.Errorf("%v selects %q, want %q", c.headers, got, c.want)
		}
	}
	if n, err := d.letters.Drop(t.Context(), queue, deadletter.Filter{Headers: map[string]string{"tenant": "4"}}); n != 1 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
}

// scanned counts the scans of all letters.
type scanned struct {
	broker.Broker
	broker.DeadLetterer
	scans int
}

func (s *scanned) Unwrap() any { return s.Broker }

func (s *scanned) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	s.scans++
	return s.DeadLetterer.ScanDead(ctx, queue, fn)
}

// TestOneIDNeedsNoScan shows that the letter of one id is found without a scan where the broker can
// do that. The id of a foreign task, which differs from that of its message, is found by a scan.
func TestOneIDNeedsNoScan(t *testing.T) {
	var counted *scanned
	d := newDesk(t, func(c *deadletter.Config) {
		counted = &scanned{Broker: c.Broker, DeadLetterer: c.Broker.(broker.DeadLetterer)} //nolint:forcetypeassert // the memory broker
		c.Broker = counted
	})
	for i := range 5 {
		d.put(simple(task.ID(fmt.Sprint("t", i)), "mail"), broker.Dead{Reason: "why"})
	}
	d.putMessage(broker.Dead{Message: &broker.Message{ID: "message", ContentType: "application/json", Body: []byte(`{"task":"mail","id":"foreign"}`)}})
	for _, c := range []struct {
		ids   []task.ID
		want  string
		scans int
	}{
		{[]task.ID{"t3"}, "t3", 0},
		{[]task.ID{"t3", "t1"}, "t1 t3", 1},
		{[]task.ID{"foreign"}, "foreign", 1},
		{[]task.ID{"nobody"}, "", 1},
	} {
		counted.scans = 0
		if got := strings.Join(d.ids(deadletter.Filter{IDs: c.ids}), " "); got != c.want || counted.scans != c.scans {
			t.Errorf("%v: %q after %d scans, want %q after %d", c.ids, got, counted.scans, c.want, c.scans)
		}
	}
	if n, err := d.letters.Drop(t.Context(), queue, deadletter.Filter{IDs: []task.ID{"t3"}}); n != 1 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	if r, err := d.letters.Requeue(t.Context(), queue, deadletter.Filter{IDs: []task.ID{"t1"}}); r.Done != 1 || err != nil {
		t.Errorf("requeued %+v, %v", r, err)
	}
	if got := strings.Join(d.ids(deadletter.Filter{}), " "); got != "t0 t2 t4 foreign" {
		t.Errorf("%s are left", got)
	}
}
