package dashboard

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	firstDelay = 250 * time.Millisecond // after a first wrong password
	longDelay  = 30 * time.Second       // at most
	maxDelayed = 10_000                 // guessers
)

// guesserOf returns the address of r, of IPv6 its network, with a part for the name of its user or
// for its token. So a login under one name does not end the wait of another name. A program with an
// old token does not hold up the other programs of its address.
func guesserOf(r *http.Request) string {
	addr := remote(r)
	if a, err := netip.ParseAddr(addr); err == nil && a.Is6() && !a.Is4In6() {
		net, _ := a.Prefix(64) // one machine has all of these
		addr = net.String()
	}
	name, _, ok := r.BasicAuth()
	if !ok {
		if name, ok = bearer(r); !ok {
			return addr
		}
	}
	sum := sha256.Sum256([]byte(name)) // it may be long, and a secret
	return addr + " " + string(sum[:8])
}

// delays slows down guessing: after a wrong password or token, a guesser (see guesserOf) must wait
// before its next attempt, twice as long each time. Safe for concurrent use.
type delays struct {
	now func() time.Time

	mu       sync.Mutex
	guessers map[string]*delay
}

type delay struct {
	wait  time.Duration
	until time.Time
}

// left returns how long a guesser must still wait.
func (d *delays) left(guesser string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.guessers[guesser]; a != nil {
		return max(0, a.until.Sub(d.now()))
	}
	return 0
}

// failed notes a wrong password or token. A guesser is forgotten a while after its last failure.
// If too many guessers wait, the one whose wait ends first is forgotten.
func (d *delays) failed(guesser string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	a := d.guessers[guesser]
	if a == nil {
		if len(d.guessers) >= maxDelayed {
			d.forget(now)
		}
		if d.guessers == nil {
			d.guessers = make(map[string]*delay)
		}
		a = &delay{}
		d.guessers[guesser] = a
	}
	if now.Sub(a.until) > 10*longDelay {
		a.wait = 0
	}
	a.wait = min(max(firstDelay, 2*a.wait), longDelay)
	a.until = now.Add(a.wait)
}

// forget makes room for a guesser. The caller holds d.mu.
func (d *delays) forget(now time.Time) {
	var first string
	for guesser, a := range d.guessers {
		if now.Sub(a.until) > 10*longDelay {
			delete(d.guessers, guesser)
			continue
		}
		if first == "" || a.until.Before(d.guessers[first].until) {
			first = guesser
		}
	}
	if len(d.guessers) >= maxDelayed {
		delete(d.guessers, first)
	}
}

// passed forgets the failures of a guesser.
func (d *delays) passed(guesser string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guessers, guesser)
}
