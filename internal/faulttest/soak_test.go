package faulttest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestSoak shows that no promise breaks under load and faults. Each engine has two queues under
// load: one of tasks that run at least once, one of tasks that run at most once. The faults come
// one after another, in an order that SWARMIJI_SEED repeats.
//
// With SWARMIJI_SOAK the test runs for the duration that the variable holds ("make soak"), one
// engine after another. Otherwise it tries each quick fault once, with all engines in parallel. Of
// the engines "make test" has one that watches connections, RabbitMQ, and one with leases, Redis.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("SWARMIJI_SOAK"))
	long := err == nil
	seed, err := strconv.ParseUint(os.Getenv("SWARMIJI_SEED"), 10, 64)
	switch {
	case err == nil:
	case long:
		seed = rand.Uint64()
	default:
		seed = 1
	}
	if testing.Short() && !long {
		t.Skip("each fault has a test of its own that a short run makes")
	}
	for _, p := range soakPlaces() {
		t.Run(p.name, func(t *testing.T) {
			if p.thorough || !p.quick && !long {
				testserver.Thorough(t) // each fault has a test of its own with each engine
			}
			if !long {
				t.Parallel()
			}
			t.Logf("SWARMIJI_SEED=%d", seed)
			soak(t, p, length, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

// soak runs loads and faults for the given length. 0: until each quick fault happened once.
func soak(t *testing.T, p *soakPlace, length time.Duration, chance *rand.Rand) {
	r := newSoakRun(t, p, chance)
	r.quick = length == 0
	faults := append(r.faults(), p.more(r)...)
	for _, l := range r.loads {
		l.progress("the start")
	}
	r.until(r.began.Add(settleTime))
	deck := r.shuffled(faults)
	for end := time.Now().Add(length); len(deck) > 0 && (r.quick || time.Now().Before(end)); {
		f := deck[0]
		if deck = deck[1:]; len(deck) == 0 && !r.quick {
			deck = r.shuffled(faults)
		}
		t.Logf("%s %s", time.Now().Format(time.TimeOnly), f.name)
		r.meet(f)
		for _, l := range r.loads {
			l.progress(f.name)
		}
	}
	for _, l := range r.loads {
		l.finish()
	}
}

// settleTime is the minimum age of queues at the first fault. A quorum queue of a single RabbitMQ
// node that is killed within seconds of the queue's declaration may come back empty.
const settleTime = 5 * time.Second

// aftermath limits how long after a fault its consequences may appear. By then each process has its
// connections back.
const aftermath = 3 * time.Second

// soakRun is a broker with two loads that run through many faults.
type soakRun struct {
	t      *testing.T
	place  *soakPlace
	nodes  []server
	net    network
	file   string // the URL of a broker without servers
	chance *rand.Rand
	quick  bool
	began  time.Time
	loads  []*load
	hits   []ledger.Fault // faults that affected all consumers
}

func newSoakRun(t *testing.T, p *soakPlace, chance *rand.Rand) *soakRun {
	r := &soakRun{t: t, place: p, chance: chance, began: time.Now()}
	p.start(r)
	for _, mode := range []string{atLeastOnce, atMostOnce} {
		l := &load{run: r, mode: mode, fleet: newFleet(t, r.url()), died: make(map[string]time.Time)}
		for range soakConsumers {
			l.consumers = append(l.consumers, l.consumer())
		}
		l.producer = l.fleet.producer(l.producerSettings())
		r.loads = append(r.loads, l)
	}
	return r
}

// pass waits for a random time up to the given one, or up to one second in a quick run.
func (r *soakRun) pass(most time.Duration) {
	if r.quick {
		most = min(most, time.Second)
	}
	r.until(time.Now().Add(time.Duration(r.chance.Int64N(int64(most)))))
}

// until waits until the given time or the end of the test.
func (r *soakRun) until(moment time.Time) {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.t.Context().Done():
	}
}

// shuffled returns the faults in random order. A quick run gets only the quick faults.
func (r *soakRun) shuffled(faults []fault) []fault {
	var deck []fault
	for _, f := range faults {
		if f.quick || !r.quick {
			deck = append(deck, f)
		}
	}
	r.chance.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// meet causes a fault. If the fault may take tasks from consumers, meet records the period in which
// it explains repeated tasks.
func (r *soakRun) meet(f fault) {
	from := time.Now()
	f.do()
	if f.takes {
		r.hits = append(r.hits, ledger.Fault{Name: f.name, From: from, To: time.Now().Add(aftermath)})
	}
}

// pick returns a random server of the broker.
func (r *soakRun) pick() server { return r.nodes[r.chance.IntN(len(r.nodes))] }

func (r *soakRun) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
