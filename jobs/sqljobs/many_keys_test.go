package sqljobs_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// keyedSpecs returns n specs for each kind of key, each with its own key, and children of 2
// parents.
func keyedSpecs(n int, what string) map[string][]jobs.Spec {
	kinds := map[string][]jobs.Spec{}
	for i := range n {
		name, key := fmt.Sprint("name-", i%10), fmt.Sprint(what, "-", i)
		kinds["sequences"] = append(kinds["sequences"], jobs.Spec{Name: name, SequenceKey: key})
		kinds["unique keys"] = append(kinds["unique keys"], jobs.Spec{Name: name, UniqueKey: key})
		kinds["keys"] = append(kinds["keys"], jobs.Spec{Name: name, Key: key})
		kinds["unique names"] = append(kinds["unique names"], jobs.Spec{Name: key, Unique: true, Data: []byte(fmt.Sprintf(`{"i":%d}`, i%7))})
		kinds["parents"] = append(kinds["parents"], jobs.Spec{Name: name, Parent: jobs.ID(1 + i)})
	}
	return kinds
}

// TestTripsOfManyKeys shows that the number of round trips of CreateAll does not grow with its
// keys, names and parents. The keys are new, or exist already.
func TestTripsOfManyKeys(t *testing.T) {
	const few, many = 20, 400 // Save writes either number with one statement
	p := testserver.RequirePostgres(t)
	counter := countTrips(t, p.Addr())
	dsn := strings.Replace(postgresURL(t), p.Addr(), counter.addr, 1)
	if u, err := url.Parse(dsn); err != nil || u.Host != counter.addr {
		t.Fatalf("%s does not lead through %s, %v", dsn, counter.addr, err)
	}
	store := open(t, dsn)
	parents := make([]*jobstore.Row, many)
	for i := range parents {
		parents[i] = job("parent", 1, time.Now())
		parents[i].State, parents[i].Due = jobstore.Paused, time.Time{}
	}
	save(t, store, parents...)
	service := serviceOf(t, store)
	for kind, specs := range keyedSpecs(many, "key") {
		trips := func(specs []jobs.Spec) (least int64) {
			least = 1 << 60
			for range 3 { // another goroutine may ask for the time
				before := counter.trips.Load()
				if _, err := service.CreateAll(bound(t), specs); err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				least = min(least, counter.trips.Load()-before)
				if kind == "keys" || kind == "unique keys" {
					return least // the second call finds the keys in use
				}
			}
			return least
		}
		a, b := trips(specs[:few]), trips(specs[few:])
		t.Logf("%s: %d trips for %d jobs, %d for %d", kind, a, few, b, many-few)
		if b > a+(many-few)/10 { // sweeps and clock requests make round trips too
			t.Errorf("%s: %d jobs take %d trips, %d jobs take %d", kind, few, a, many-few, b)
		}
	}
}

// counter relays connections to PostgreSQL. It counts how many times the server becomes ready for
// the next statements.
type counter struct {
	addr  string
	trips atomic.Int64
}

func countTrips(t *testing.T, server string) *counter {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{addr: l.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() {
				_, _ = io.Copy(upstream, client)
				_ = upstream.Close()
			})
			all.Go(func() {
				c.relay(client, upstream)
				_ = client.Close()
			})
		}
	})
	return c
}

// relay forwards the messages of a server: one byte, then a length that includes itself.
func (c *counter) relay(to io.Writer, from io.Reader) {
	r := bufio.NewReader(from)
	for {
		head, err := r.Peek(5)
		if err != nil {
			return
		}
		if head[0] == 'Z' {
			c.trips.Add(1)
		}
		if _, err := io.CopyN(to, r, 1+int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
			return
		}
	}
}

// BenchmarkBesideManyKeys creates jobs with keys, one by one, while one call creates very many. It
// reports the longest time of a single creation, and the time of that call.
func BenchmarkBesideManyKeys(b *testing.B) {
	for _, n := range []int{3000, 20_000} {
		for _, kind := range []string{"sequences", "unique keys", "keys", "unique names"} {
			b.Run(fmt.Sprint(kind, "/", n), func(b *testing.B) {
				dsn := postgresURL(b)
				service, other := serviceOf(b, open(b, dsn)), serviceOf(b, open(b, dsn))
				var longest, call []float64
				for round := 0; b.Loop(); round++ {
					ctx, end := context.WithCancel(context.Background())
					var most time.Duration
					var bystander sync.WaitGroup
					begun := make(chan struct{})
					bystander.Go(func() {
						for i := 0; ctx.Err() == nil; i++ {
							start := time.Now()
							if _, err := other.Create(context.Background(), keyedSpecs(1, fmt.Sprint("other-", round, "-", i))[kind][0]); err != nil {
								b.Error(err)
							}
							if i == 0 { // the first creation made the tables
								close(begun)
								continue
							}
							most = max(most, time.Since(start))
						}
					})
					<-begun
					start := time.Now()
					if _, err := service.CreateAll(context.Background(), keyedSpecs(n, fmt.Sprint("many-", round))[kind]); err != nil {
						b.Error(err)
					}
					call = append(call, float64(time.Since(start).Milliseconds()))
					end()
					bystander.Wait()
					longest = append(longest, float64(most.Milliseconds()))
				}
				b.ReportMetric(slices.Max(longest), "ms-longest-beside")
				b.ReportMetric(slices.Max(call), "ms-call")
			})
		}
	}
}
