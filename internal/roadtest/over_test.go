package roadtest_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/roadtest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
)

// over puts the road on the server of a URL, with a namespace for each test. Every broker has a proxy of its own.
func over(url, addr string) roadtest.Open {
	return func(*testing.T) *roadtest.Harness {
		o := open.Options{Namespace: testserver.Namespace(), Logger: quiet()}
		proxies := make(map[broker.Broker]*testserver.Proxy)
		return &roadtest.Harness{
			Broker: func(t *testing.T) broker.Broker {
				proxy := testserver.NewProxy(t, addr)
				b := opened(t, proxy.URL(url), o, open.Broker)
				proxies[b] = proxy
				return b
			},
			Results:     func(t *testing.T) resultstore.ResultStore { return opened(t, url, o, open.Results) },
			Events:      func(t *testing.T) events.EventBus { return opened(t, url, o, open.Events) },
			Revocations: func(t *testing.T) events.EventBus { return opened(t, url, o, open.Revocations) },
			Sever:       func(_ *testing.T, b broker.Broker) { proxies[b].Sever() },
			KeepsHeld:   true,
		}
	}
}

// noLeaks has t fail if goroutines are left at its end that did not run when this was called: when the servers run, and before
// the first part is opened.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		err := goleak.Find(before)
		for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
			err = goleak.Find(before) // which takes a while when there are any
		}
		if err != nil {
			t.Error(err)
		}
	})
}
