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

// TestSoak keeps a fleet over each engine under load for as long as SWARMIJI_SOAK says and lets one fault follow the other,
// in an order that SWARMIJI_SEED repeats. "make soak" runs it.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("SWARMIJI_SOAK"))
	if err != nil {
		t.Skip("SWARMIJI_SOAK holds no duration, such as 10m")
	}
	seed, err := strconv.ParseUint(os.Getenv("SWARMIJI_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("SWARMIJI_SEED=%d", seed)
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { soak(t, e, length, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func soak(t *testing.T, e *engine, length time.Duration, chance *rand.Rand) {
	node := e.own(t)
	r := &soakRun{t: t, engine: e, node: node, proxy: testserver.NewProxy(t, node.Addr()), chance: chance}
	r.fleet = newFleet(t, r.proxy.URL(node.URL())+e.alert)
	for range 3 {
		r.consumers = append(r.consumers, r.consumer())
	}
	r.producer = r.fleet.producer(r.producerSettings())
	faults := append(r.faults(), e.more(r)...)
	for end := time.Now().Add(length); time.Now().Before(end); {
		progress := len(r.fleet.history().Tasks(ledger.Finished))
		f := faults[chance.IntN(len(faults))]
		t.Logf("%s %s", time.Now().Format(time.TimeOnly), f.name)
		f.do()
		r.fleet.await("progress after "+f.name, atLeast(progress+100, ledger.Finished))
	}
	r.producer.terminate(60 * time.Second)
	r.fleet.await("all confirmed tasks finished", nothingLost)
	for _, c := range r.consumers {
		c.terminate(30 * time.Second)
	}
	r.fleet.check(ledger.NoLoss, ledger.NoGhosts)
	r.fleet.awaitEmpty(r.fleet.connect(node.URL()).Broker)
}

// soakRun is a fleet that meets many faults.
type soakRun struct {
	t         *testing.T
	engine    *engine
	node      server
	proxy     *testserver.Proxy
	chance    *rand.Rand
	fleet     *fleet
	consumers []*program
	producer  *program
}

func (r *soakRun) consumer() *program {
	return r.fleet.consumer(r.engine.quick(settings{"TASK_MS": 20, "CONCURRENCY": 4, "SEED": r.chance.Uint32()}))
}

func (r *soakRun) producerSettings() settings {
	return settings{"ID": "producer", "RATE": 100, "CONCURRENCY": 32, "RESUME": 1, "SEED": r.chance.Uint32()}
}

// replace ends one of the consumers and starts another.
func (r *soakRun) replace(end func(*program)) {
	i := r.chance.IntN(len(r.consumers))
	end(r.consumers[i])
	r.consumers[i] = r.consumer()
}

// pass lets a fault last for up to the given time.
func (r *soakRun) pass(most time.Duration) {
	timer := time.NewTimer(time.Duration(r.chance.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.t.Context().Done():
	}
}

type fault struct {
	name string
	do   func()
}

func (r *soakRun) faults() []fault {
	return []fault{
		{"consumer killed", func() { r.replace((*program).kill) }},
		{"consumer terminated", func() { r.replace(func(p *program) { p.terminate(30 * time.Second) }) }},
		{"producer killed", func() {
			r.producer.kill()
			r.producer = r.fleet.producer(r.producerSettings())
		}},
		{"connections cut", r.proxy.Sever},
		{"network away", func() { r.proxy.Cut(); r.pass(5 * time.Second); r.proxy.Heal() }},
		{"network swallows all", func() { r.proxy.BlackHole(true, true); r.pass(8 * time.Second); r.proxy.Heal() }},
		{"network swallows answers", func() { r.proxy.BlackHole(false, true); r.pass(8 * time.Second); r.proxy.Heal() }},
		{"network slow", func() {
			r.proxy.Latency(100*time.Millisecond, 80*time.Millisecond)
			r.pass(5 * time.Second)
			r.proxy.Heal()
		}},
		{"broker frozen", func() { r.node.Pause(); r.pass(8 * time.Second); r.node.Resume() }},
		{"broker closes all connections", func() { r.must(r.node.CloseAllConnections(r.t.Context())) }},
		{"broker killed", func() { r.node.Kill(); r.must(r.node.Restart(r.t.Context())) }},
		{"broker restarted", func() { r.must(r.node.Restart(r.t.Context())) }},
	}
}

func rabbitFaults(r *soakRun) []fault {
	node := r.node.(*testserver.Rabbit)
	return []fault{{"broker out of memory", func() {
		r.must(node.SetMemoryAlarm(r.t.Context(), true))
		r.pass(5 * time.Second)
		r.must(node.SetMemoryAlarm(r.t.Context(), false))
	}}}
}

func redisFaults(r *soakRun) []fault {
	do := func(args ...any) {
		_, err := r.node.(*testserver.Redis).Do(r.t.Context(), args...)
		r.must(err)
	}
	return []fault{
		{"broker out of memory", func() {
			do("CONFIG", "SET", "maxmemory", "1mb")
			r.pass(5 * time.Second)
			do("CONFIG", "SET", "maxmemory", "0")
		}},
		{"broker forgets its scripts", func() { do("SCRIPT", "FLUSH") }},
	}
}

func (r *soakRun) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
