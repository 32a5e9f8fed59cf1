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
	maxDelayed = 10_000                 // addresses
)

// guesserOf returns the address of r, of IPv6 its network, with a part for the name of its user. So
// a login under one name does not end the wait of another name.
func guesserOf(r *http.Request) string {
	addr := remote(r)
	if a, err := netip.ParseAddr(addr); err == nil && a.Is6() && !a.Is4In6() {
		net, _ := a.Prefix(64) // one machine has all of these
		addr = net.String()
	}
	name, _, ok := r.BasicAuth()
	if !ok {
		return addr
	}
	sum := sha256.Sum256([]byte(name)) // a name may be long
	return addr + " " + string(sum[:8])
}

// delays slows down guessing: after a wrong password or token, an address must wait before its next
// attempt under this name, twice as long each time. Safe for concurrent use.
type delays struct {
	now func() time.Time

	mu    sync.Mutex
	addrs map[string]*delay
}

type delay struct {
	wait  time.Duration
	until time.Time
}

// left returns how long an address must still wait.
func (d *delays) left(addr string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.addrs[addr]; a != nil {
		return max(0, a.until.Sub(d.now()))
	}
	return 0
}

// failed notes a wrong password or token. An address is forgotten a while after its last failure.
// If too many addresses wait, the one whose wait ends first is forgotten.
func (d *delays) failed(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	a := d.addrs[addr]
	if a == nil {
		if len(d.addrs) >= maxDelayed {
			d.forget(now)
		}
		if d.addrs == nil {
			d.addrs = make(map[string]*delay)
		}
		a = &delay{}
		d.addrs[addr] = a
	}
	if now.Sub(a.until) > 10*longDelay {
		a.wait = 0
	}
	a.wait = min(max(firstDelay, 2*a.wait), longDelay)
	a.until = now.Add(a.wait)
}

// forget makes room for an address. The caller holds d.mu.
func (d *delays) forget(now time.Time) {
	var first string
	for addr, a := range d.addrs {
		if now.Sub(a.until) > 10*longDelay {
			delete(d.addrs, addr)
			continue
		}
		if first == "" || a.until.Before(d.addrs[first].until) {
			first = addr
		}
	}
	if len(d.addrs) >= maxDelayed {
		delete(d.addrs, first)
	}
}

// passed forgets the failures of an address.
func (d *delays) passed(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.addrs, addr)
}
