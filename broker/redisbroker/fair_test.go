package redisbroker_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// declaredFair creates a fair queue and returns its name.
func declaredFair(t testing.TB, b *redisbroker.Broker, q string, levels ...int) string {
	t.Helper()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: q, Fair: true, Levels: levels}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	return q
}

// of returns n messages of a fairness key, with a weight.
func of(key string, weight, n int) []*broker.Message {
	ms := messages(key, n)
	for _, m := range ms {
		m.Key, m.Weight = key, weight
	}
	return ms
}

// fairKeys returns how many entries of fairness keys a queue has on the servers, in all its keys.
func fairKeys(t testing.TB, ns, queue string, servers ...*testserver.Redis) int {
	t.Helper()
	count := 0
	prefix := "swj:{" + ns + "." + queue + "}:"
	for _, srv := range servers {
		all, _ := do(t, srv, "KEYS", prefix+"*").([]any)
		for _, key := range all {
			name, _ := key.(string)
			command := map[byte]string{'k': "ZCARD", 'f': "HLEN", 'w': "HLEN", 'v': "HLEN", 'b': "HLEN", 'p': "ZCARD", 'q': "HLEN", 'u': "ZCARD"}[name[len(prefix)]]
			if strings.Contains(name[len(prefix):], ":") && command == "HLEN" {
				command = "LLEN" // of a key with many messages
			}
			if command != "" {
				n, _ := do(t, srv, command, name).(int64)
				if name == prefix+"b" {
					n-- // see lua/bounds.lua
				}
				count += int(n)
			}
		}
	}
	return count
}

// forgotten waits until a queue has no entries of fairness keys.
func forgotten(t testing.TB, srv *testserver.Redis, ns, queue string) {
	t.Helper()
	testwait.Until(t, "that nothing of the fairness keys is left", func() bool { return fairKeys(t, ns, queue, srv) == 0 })
}

// TestTurnsOfSingleClaims shows that keys with ready messages have turns by their weights, also if
// the claims take one message at a time.
func TestTurnsOfSingleClaims(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, slices.Concat(of("light", 0, 30), of("heavy", 5, 150))...)
	s := subscribe(t, b, q, 1)
	got := map[string]float64{}
	for range 180 {
		d := receive(t, s)
		got[d.Message().Key]++
		if diff := got["light"] - got["heavy"]/5; math.Abs(diff) > 2 {
			t.Fatalf("after %v deliveries the keys differ by %.1f turns", got, diff)
		}
		ack(t, d)
	}
	forgotten(t, srv, ns, q)
}

// TestTurnsOfLargeClaims shows the same for claims of many messages, for keys with other weights
// than the claim expects, and for many keys. At the end the server has forgotten all keys.
func TestTurnsOfLargeClaims(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q")
	weights := map[string]int{"a": 1, "b": 2, "c": 5}
	const turns, prefetch = 800, 64
	for key, weight := range weights {
		publishAll(t, b, q, of(key, weight, turns*weight)...)
	}
	s := subscribe(t, b, q, prefetch)
	got := map[string]float64{}
	for range 8*turns - 8*prefetch {
		d := receive(t, s)
		key := d.Message().Key
		got[key] += 1 / float64(weights[key])
		ack(t, d)
		for other := range weights {
			if diff := got[key] - got[other]; diff > prefetch+1 {
				t.Fatalf("the keys %s and %s differ by %.1f turns: %v", key, other, diff, got)
			}
		}
	}
	var ms []*broker.Message
	for i := range 3000 {
		ms = append(ms, of(fmt.Sprint("customer-", i), i%3, 1)...)
	}
	publishAll(t, b, q, ms...)
	for range 8*prefetch + len(ms) {
		ack(t, receive(t, s))
	}
	nothing(t, s)
	forgotten(t, srv, ns, q)
	if st := stats(t, b, q); st != (broker.Stats{}) {
		t.Errorf("at the end: %+v", st)
	}
}

// TestNewKeyOvertakes shows that a new key does not wait for the backlog of others. A key with one
// message at a time does not take every second turn of many busy keys.
func TestNewKeyOvertakes(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q")
	for i := range 10 {
		publishAll(t, b, q, of(fmt.Sprint("busy", i), 0, 50)...)
	}
	s := subscribe(t, b, q, 1)
	for range 105 {
		ack(t, receive(t, s))
	}
	own, starts := 0, 0
	for i := range 110 {
		if st := stats(t, b, q); own == starts && st.Ready > 0 { // its last message has started
			m := of("new", 0, 1)[0]
			m.ID = fmt.Sprint("n", own)
			publish(t, b, q, m)
			own++
		}
		d := receive(t, s)
		if d.Message().Key == "new" {
			starts++
			if starts == 1 && i > 12 {
				t.Errorf("the first message of the new key came after %d others", i)
			}
		}
		ack(t, d)
	}
	if starts < 3 || starts > 15 {
		t.Errorf("the key with one message at a time had %d of 110 turns beside ten busy keys", starts)
	}
	if n, err := b.Purge(testwait.Long(t), q); err != nil || n == 0 {
		t.Errorf("Purge: %d, %v", n, err)
	}
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if _, err := b.Purge(testwait.Long(t), q); err != nil {
		t.Errorf("Purge: %v", err)
	}
	forgotten(t, srv, ns, q)
}

// TestNewKeysAfterGiveBack shows that new keys do not pass an older one for long after messages
// went back to the queue. These lower the tag of their key.
func TestNewKeysAfterGiveBack(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, of("returned", 0, 20)...)
	s := subscribe(t, b, q, 10)
	testwait.Until(t, "that the consumer holds 10", func() bool { return stats(t, b, q).Held == 10 })
	publish(t, b, q, of("older", 0, 1)...)
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for i := range 30 {
		publish(t, b, q, of(fmt.Sprint("new", i), 0, 1)...)
	}
	s = subscribe(t, b, q, 1)
	place := 0
	for i := range 81 {
		d := receive(t, s)
		if d.Message().Key == "older" {
			place = i
		}
		ack(t, d)
		publish(t, b, q, of(fmt.Sprint("newer", i), 0, 1)...)
	}
	if place == 0 || place > 75 {
		t.Errorf("the older key had turn %d", place)
	}
	for range 51 {
		ack(t, receive(t, s))
	}
	forgotten(t, srv, ns, q)
}

// TestFairListPages shows that pages of any size together show each waiting message once: in order
// within a key, and the first ones of all keys first.
func TestFairListPages(t *testing.T) {
	t.Parallel()
	b := connect(t, redisbroker.Config{})
	q := declaredFair(t, b, "q", 10, 200)
	var ms []*broker.Message
	for key, n := range map[string]int{"a": 1, "b": 30, "c": 3, "d": 700, "": 9} {
		ms = append(ms, of(key, len(key), n)...)
	}
	urgent := of("b", 1, 20)
	for _, m := range urgent {
		m.ID, m.Priority = "u"+m.ID, 3
	}
	publishAll(t, b, q, append(ms, urgent...)...)
	for _, limit := range []int{7, 100, 1000} {
		var got []*broker.Message
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			p, err := b.List(testwait.Long(t), q, broker.ListQuery{Place: broker.PlaceWaiting, Limit: limit, Cursor: cursor})
			if err != nil || len(p.Messages) > limit || pages > 1000 {
				t.Fatalf("page %d of %d: %d messages, %v", pages, limit, len(p.Messages), err)
			}
			for _, l := range p.Messages {
				got = append(got, l.Message)
			}
			cursor = p.Next
		}
		last, seen := map[string]string{}, map[string]bool{}
		for i, m := range got {
			if seen[m.ID] || i < 20 != (m.Priority == 3) || m.Priority != 3 && last[m.Key] >= m.ID {
				t.Fatalf("limit %d: message %d is %s, after %q", limit, i, m.ID, last[m.Key])
			}
			if seen[m.ID] = true; m.Priority != 3 {
				last[m.Key] = m.ID
			}
			if i >= 20 && i < 25 && !strings.HasSuffix(m.ID, "-000000") {
				t.Errorf("limit %d: message %d is %s, want the first one of a key", limit, i, m.ID)
			}
		}
		if len(got) != len(ms)+20 {
			t.Errorf("limit %d: %d messages, want %d", limit, len(got), len(ms)+20)
		}
	}
}

// TestFairLeaseEnds shows that the messages of a consumer whose lease ended stand first in their
// keys, and that their deliveries count.
func TestFairLeaseEnds(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: 50 * time.Millisecond})
	dead, l := overLine(t, redisbroker.Config{Namespace: ns, Lease: 500 * time.Millisecond}, srv)
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, slices.Concat(of("a", 0, 10), of("b", 2, 10))...)
	s := subscribe(t, dead, q, 8)
	for range 4 {
		receive(t, s)
	}
	testwait.Until(t, "that the consumer holds 8", func() bool { return stats(t, b, q).Held == 8 })
	l.set(true)
	defer l.set(false)
	testwait.Until(t, "that the lease has ended", func() bool {
		return do(t, srv, "ZCOUNT", "swj:{"+ns+"."+q+"}:o", fmt.Sprint(time.Now().UnixMicro()), "+inf") == int64(0)
	})
	next := map[string]int{}
	again := 0
	s = subscribe(t, b, q, 1)
	for range 20 {
		d := receive(t, s)
		m := d.Message()
		if n, _ := d.Deliveries(); n == 2 {
			again++
		}
		if want := fmt.Sprintf("%s-%06d", m.Key, next[m.Key]); m.ID != want {
			t.Errorf("received %s, want %s", m.ID, want)
		}
		next[m.Key]++
		ack(t, d)
	}
	if again != 8 {
		t.Errorf("%d messages came for the second time, want 8", again)
	}
	forgotten(t, srv, ns, q)
}

// TestFairnessDiffers shows that a difference of fairness is logged once.
func TestFairnessDiffers(t *testing.T) {
	t.Parallel()
	var book logBook
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Logger: book.logger()})
	q := declaredFair(t, b, "q", 10, 200)
	for range 2 {
		if err := b.Declare(testwait.Long(t), broker.Queue{Name: q, Levels: []int{10, 200}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := book.String(); strings.Count(got, "another fairness") != 1 {
		t.Errorf("the log is %q", got)
	}
	d, err := b.Describe(testwait.Long(t), q)
	if err != nil || !d.Fair || !slices.Equal(d.Levels, []int{10, 200}) {
		t.Errorf("Describe: %+v, %v", d, err)
	}
}

// bare returns a client of the server for the tests of stored data.
func bare(t testing.TB, srv *testserver.Redis) redis.UniversalClient {
	t.Helper()
	c := redis.NewUniversalClient(options(srv))
	t.Cleanup(func() { _ = c.Close() })
	return c
}
