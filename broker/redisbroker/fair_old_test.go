package redisbroker_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// older calls the scripts as the version before fair queues does: it knows only the scripts of
// plain queues, and passes the levels text of the server without understanding "fair".
type older struct {
	t      testing.TB
	c      redis.UniversalClient
	prefix string
}

func (o older) call(script string, parts []string, args ...any) []any {
	o.t.Helper()
	source, err := redisbroker.Source(script)
	if err != nil {
		o.t.Fatal(err)
	}
	keys := make([]string, len(parts))
	for i, p := range parts {
		keys[i] = o.prefix + p
	}
	v, err := o.c.Eval(testwait.Long(o.t), source, keys, append([]any{"fair"}, args...)...).Result()
	if err != nil {
		o.t.Fatalf("%s: %v", script, err)
	}
	answer, _ := v.([]any)
	if len(answer) == 0 || answer[0] != int64(1) {
		o.t.Fatalf("%s: %v", script, v)
	}
	return answer
}

var (
	partsOfEnqueue = []string{"m", "t", "d", "l", "o", "c", "n", "s", "g", "h", "a", "r0"}
	partsOfClaim   = []string{"m", "t", "d", "l", "o", "c", "n", "s", "h", "a", "r0"}
	partsOfLeave   = []string{"m", "t", "l", "o", "c", "n", "s", "h", "a", "r0"}
)

// TestOlderVersionOnAFairQueue shows that a process of the version before fair queues does no harm
// on one. The messages that it publishes take turns. Its consumer claims no message of
// newer processes. Those that it gives back, deletes or makes due are not lost.
func TestOlderVersionOnAFairQueue(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q")
	old := older{t, bare(t, srv), "swj:{" + ns + "." + q + "}:"}
	channel := old.prefix + "w"
	stored := func(id string) string { // a message without a fairness key
		return "\x01\x00\x00\x00\x64" + string(make([]byte, 13)) + "body of " + id
	}
	old.call("declare", []string{"m"})
	publishAll(t, b, q, slices.Concat(of("a", 0, 5), of("b", 0, 5))...)

	// Its consumer claims only what its producers published.
	old.call("enqueue", partsOfEnqueue, channel, 2, 0, "old-0", stored("old-0"), "old-1", stored("old-1"))
	do(t, srv, "ZADD", old.prefix+"o", "99999999999999999", "7")
	do(t, srv, "HSET", old.prefix+"c", "7", "0:0:n:")
	got := old.call("claim", partsOfClaim, channel, 7, 1, 100, 0, 1<<20, 64, "", "", 0, 0)
	if len(got) != 8 || got[4] != "old-0" || got[6] != "old-1" {
		t.Fatalf("its consumer received %v", got)
	}
	old.call("release", partsOfClaim, channel, "old-0", "7.1", 0, 1, "old-1", "7.1", 0, 1)
	// It deletes a message in the turns.
	old.call("update", partsOfEnqueue, channel, "a-000002")
	// It enqueues a delayed message, which the newer process makes due.
	old.call("enqueue", partsOfEnqueue, channel, 0, 1, "later", stored("later"), "+1000")
	old.call("leave", partsOfLeave, channel, 7)

	want := []string{"later", "old-0", "old-1"}
	for i := range 5 {
		want = append(want, fmt.Sprintf("b-%06d", i))
		if i != 2 {
			want = append(want, fmt.Sprintf("a-%06d", i))
		}
	}
	testwait.Until(t, "that 12 messages are ready", func() bool { return stats(t, b, q).Ready == len(want) })
	s := subscribe(t, b, q, 4)
	var ids []string
	for range want {
		d := receive(t, s)
		ids = append(ids, d.Message().ID)
		ack(t, d)
	}
	nothing(t, s)
	slices.Sort(ids)
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		t.Errorf("received %q, want %q", ids, want)
	}
	if st := stats(t, b, q); st != (broker.Stats{}) {
		t.Errorf("at the end: %+v", st)
	}
	forgotten(t, srv, ns, q)
}

// TestForeignTasksOnAFairQueue shows that JSON tasks which another program pushes take the turns of
// the key "".
func TestForeignTasksOnAFairQueue(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, of("a", 0, 50)...)
	do(t, srv, "RPUSH", "swj:{"+ns+"."+q+"}:r0", `{"task":"x"}`, `{"task":"y"}`)
	if st := stats(t, b, q); st.Ready != 52 {
		t.Errorf("%+v, want 52 ready", st)
	}
	s := subscribe(t, b, q, 1)
	seen := 0
	for i := range 52 {
		d := receive(t, s)
		if d.Message().Key == "" {
			if seen++; i > 6 {
				t.Errorf("a pushed task came after %d others", i)
			}
		}
		ack(t, d)
	}
	if seen != 2 {
		t.Errorf("%d pushed tasks came", seen)
	}
	forgotten(t, srv, ns, q)
}
