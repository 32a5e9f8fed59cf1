package endtoend_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
)

// over returns an Open for the server of a URL, with a namespace for each test. Every broker has
// its own proxy.
func over(url, addr string) endtoend.Open {
	return func(*testing.T) *endtoend.Harness {
		o := open.Options{Namespace: testserver.Namespace(), Logger: quiet()}
		proxies := make(map[broker.Broker]*testserver.Proxy)
		return &endtoend.Harness{
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

// briefly returns open for a road beside others that have all cases. With SWARMIJI_THOROUGH it has
// all of them, too.
func briefly(open endtoend.Open) endtoend.Open {
	return func(t *testing.T) *endtoend.Harness {
		h := open(t)
		h.Brief = !testserver.IsThorough()
		return h
	}
}

// noLeaks fails t if goroutines remain at its end that did not run at this call. Call it when the
// servers run and before the first part is opened.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		err := goleak.Find(before)
		for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
			err = goleak.Find(before) // which takes a while if goroutines remain
		}
		if err != nil {
			t.Error(err)
		}
	})
}
