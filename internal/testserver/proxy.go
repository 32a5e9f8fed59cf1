package testserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// ProxyRead and ProxyPipe name functions of the proxy's library whose goroutines may stay blocked
// for ever. That happens if a fault is removed from a connection that ends at the same time. Tests
// that do so pass them to goleak.IgnoreAnyFunction.
const (
	ProxyRead = "github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"
	ProxyPipe = "github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"
)

// Proxy is a TCP proxy in front of a server, with faults on demand. It begins without faults. Safe
// for concurrent use.
type Proxy struct {
	tb    testing.TB
	proxy *toxiproxy.Proxy

	mu    sync.Mutex
	cut   bool
	lossy bool // a fault that loses bytes is or was active: connections of that time cannot be healed
}

// NewProxy starts a proxy on a free port. The end of the test closes it.
func NewProxy(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{tb: tb}
	var err error
	for range 10 { // another process may take the port first
		var ports []int
		if ports, err = freePorts(1); err != nil {
			break
		}
		p.proxy = toxiproxy.NewProxy(server, "proxy", address(ports[0]), upstream)
		if err = p.proxy.Start(); err == nil {
			tb.Cleanup(p.proxy.Stop)
			return p
		}
	}
	tb.Fatalf("proxy to %s: %v", upstream, err)
	return nil
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.proxy.Listen }

// URL returns a URL of the upstream server with the proxy's address in place of the server's.
func (p *Proxy) URL(upstream string) string {
	p.tb.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		p.tb.Fatal("proxy: the URL of the server does not parse") // its text may contain a password
	}
	u.Host = p.Addr()
	return u.String()
}

// Sever closes all connections. The proxy accepts new connections when Sever returns. It does
// nothing after Cut.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut {
		p.restart()
	}
}

// Cut closes all connections and refuses new ones until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
	p.cut = true
}

// BlackHole swallows the data to the server (up), the data from it (down), or both, on present and
// new connections. The connections stay open.
func (p *Proxy) BlackHole(up, down bool) {
	p.add("blackhole", "timeout", up, down, true, map[string]int64{"timeout": 0})
}

// Latency delays each direction by d plus or minus up to jitter.
func (p *Proxy) Latency(d, jitter time.Duration) {
	p.add("latency", "latency", true, true, false,
		map[string]int64{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()})
}

// Bandwidth limits each direction to kb kilobytes per second.
func (p *Proxy) Bandwidth(kb int64) {
	p.add("bandwidth", "bandwidth", true, true, false, map[string]int64{"rate": kb})
}

// Truncate closes each connection after n bytes to the server (up), from it (down), or either. For
// present connections the count begins now.
func (p *Proxy) Truncate(up, down bool, n int64) {
	p.add("truncate", "limit_data", up, down, true, map[string]int64{"bytes": n})
}

// Heal ends all faults. It closes connections that may have lost bytes.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lossy || p.cut {
		p.proxy.Stop()
		p.proxy.Toxics.ResetToxics(p.tb.Context())
		p.restart()
	} else {
		p.proxy.Toxics.ResetToxics(p.tb.Context())
	}
	p.lossy, p.cut = false, false
}

// restart closes the proxy's connections and listens again. A program that this process is starting
// may still hold the old listener until the program begins, so restart retries for 10 seconds.
func (p *Proxy) restart() {
	p.proxy.Stop()
	err := p.proxy.Start()
	for end := time.Now().Add(10 * time.Second); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); err = p.proxy.Start() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		p.tb.Errorf("proxy on %s: %v", p.Addr(), err)
	}
}

// add puts a fault on one or both directions. The library accepts faults only as JSON documents.
func (p *Proxy) add(name, kind string, up, down, lossy bool, attributes map[string]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lossy = p.lossy || lossy
	for stream, on := range map[string]bool{"upstream": up, "downstream": down} {
		if !on {
			continue
		}
		doc, err := json.Marshal(map[string]any{
			"name": fmt.Sprintf("%s-%s", name, stream), "type": kind, "stream": stream, "attributes": attributes,
		})
		if err == nil {
			_, err = p.proxy.Toxics.AddToxicJson(strings.NewReader(string(doc)))
		}
		if err != nil {
			p.tb.Errorf("proxy fault %s: %v", name, err)
		}
	}
}
