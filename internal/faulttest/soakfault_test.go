package faulttest

import (
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// fault is a fault that a soak run can cause.
type fault struct {
	name  string
	do    func()
	takes bool // the broker may take back tasks that consumers hold
	quick bool // a quick run includes it
}

// flapTime holds the length of the up phase and of the down phase of a flapping link.
const flapTime = 200 * time.Millisecond

// faults returns the faults of processes and, if the broker has servers, those of servers and
// network.
func (r *soakRun) faults() []fault {
	if len(r.nodes) == 0 {
		return r.processFaults()
	}
	return append(r.processFaults(), r.serverFaults()...)
}

func (r *soakRun) processFaults() []fault {
	each := func(do func(l *load)) func() {
		return func() {
			for _, l := range r.loads {
				do(l)
			}
		}
	}
	return []fault{
		{name: "consumer killed", do: each(func(l *load) { l.kill(r.chance.IntN(soakConsumers)) }), quick: true},
		{name: "consumer stopped", do: each(func(l *load) { l.stop(r.chance.IntN(soakConsumers)) })},
		{name: "consumers stopped in a row", quick: true, do: each(func(l *load) {
			rounds := 3
			if r.quick {
				rounds = 1
			}
			for range rounds {
				for i := range l.consumers {
					l.stop(i)
				}
			}
		})},
		{name: "producer killed", do: each(func(l *load) {
			l.producer.kill()
			l.producer = l.fleet.producer(l.producerSettings())
		})},
	}
}

func (r *soakRun) serverFaults() []fault {
	return []fault{
		{name: "connections cut", do: r.net.Sever, takes: true},
		{name: "link flaps", do: r.flap, takes: true, quick: true},
		{name: "links die in the middle of a frame", do: r.midFrame, takes: true, quick: true},
		{name: "network away", do: func() { r.net.Cut(); r.pass(5 * time.Second); r.net.Heal() }, takes: true},
		{name: "network swallows all", do: func() { r.net.BlackHole(true, true); r.pass(8 * time.Second); r.net.Heal() }, takes: true},
		{name: "network swallows answers", do: func() { r.net.BlackHole(false, true); r.pass(8 * time.Second); r.net.Heal() }, takes: true},
		{name: "network slow", do: func() {
			r.net.Latency(100*time.Millisecond, 80*time.Millisecond)
			r.pass(5 * time.Second)
			r.net.Heal()
		}},
		{name: "broker frozen", do: func() { n := r.pick(); n.Pause(); r.pass(8 * time.Second); n.Resume() }, takes: true},
		{name: "broker closes all connections", do: func() {
			for _, n := range r.nodes {
				r.must(n.CloseAllConnections(r.t.Context()))
			}
		}, takes: true},
		{name: "broker killed", do: func() { n := r.pick(); n.Kill(); r.must(n.Restart(r.t.Context())) }, takes: true, quick: true},
		{name: "broker restarted", do: func() { r.must(r.pick().Restart(r.t.Context())) }, takes: true},
	}
}

// flap cuts and heals the link in turns.
func (r *soakRun) flap() {
	length := 4 * time.Second
	if r.quick {
		length = 2 * time.Second
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		r.net.Cut()
		r.until(time.Now().Add(flapTime))
		r.net.Heal()
		r.until(time.Now().Add(flapTime))
	}
}

// midFrame closes links after a number of bytes at which usually no frame ends.
func (r *soakRun) midFrame() {
	for range 2 {
		up := r.chance.IntN(2) == 0
		r.net.Truncate(up, !up, 500+r.chance.Int64N(20_000))
		r.until(time.Now().Add(time.Second))
		r.net.Heal()
	}
}

// alarm returns a fault: the broker refuses requests that need memory, for longer than consumers
// retry.
func (r *soakRun) alarm(set func(on bool)) fault {
	return fault{name: "broker out of memory", do: func() {
		set(true)
		r.until(time.Now().Add(insistence))
		r.pass(4 * time.Second)
		set(false)
	}, quick: true}
}

func rabbitFaults(r *soakRun) []fault {
	return []fault{r.alarm(func(on bool) {
		r.must(r.nodes[0].(*testserver.Rabbit).SetMemoryAlarm(r.t.Context(), on))
	})}
}

func redisFaults(r *soakRun) []fault {
	do := func(args ...any) {
		_, err := r.nodes[0].(*testserver.Redis).Do(r.t.Context(), args...)
		r.must(err)
	}
	return []fault{
		r.alarm(func(on bool) {
			limit := "0"
			if on {
				limit = "1mb"
			}
			do("CONFIG", "SET", "maxmemory", limit)
		}),
		{name: "broker forgets its scripts", do: func() { do("SCRIPT", "FLUSH") }},
	}
}

// network holds the proxies in front of each of a broker's servers. Its methods apply to all
// proxies.
type network []*testserver.Proxy

func (n network) each(do func(*testserver.Proxy)) {
	for _, p := range n {
		do(p)
	}
}

func (n network) Sever() { n.each((*testserver.Proxy).Sever) }
func (n network) Cut()   { n.each((*testserver.Proxy).Cut) }
func (n network) Heal()  { n.each((*testserver.Proxy).Heal) }

func (n network) BlackHole(up, down bool) {
	n.each(func(p *testserver.Proxy) { p.BlackHole(up, down) })
}

func (n network) Latency(d, jitter time.Duration) {
	n.each(func(p *testserver.Proxy) { p.Latency(d, jitter) })
}

func (n network) Truncate(up, down bool, bytes int64) {
	n.each(func(p *testserver.Proxy) { p.Truncate(up, down, bytes) })
}
