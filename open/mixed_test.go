package open_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
)

// TestMixed uses a broker, results and events on three servers, named in the options or in one URL.
func TestMixed(t *testing.T) {
	rabbit, redis, nats := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t)
	ns := testserver.Namespace()
	in := opened(t, rabbit.URL(), open.Options{Namespace: ns, Results: redis.URL(), Events: nats.URL()})
	out := opened(t, rabbit.URL()+"?namespace="+ns+"&results="+url.QueryEscape(redis.URL())+"&events="+url.QueryEscape(nats.URL()), open.Options{})
	roundTrip(t, out, in)
	if err := out.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if found := keys(t, redis, "*"+ns+"*"); len(found) == 0 {
		t.Error("no result is in Redis under the namespace of the broker's URL")
	}
	other := opened(t, redis.URL(), open.Options{Namespace: ns, Results: nats.URL(), Events: rabbit.URL()})
	roundTrip(t, other, opened(t, redis.URL(), open.Options{Namespace: ns, Results: nats.URL(), Events: rabbit.URL()}))
}

// TestRetain shows that every bus retains events for late listeners when Retain is set.
func TestRetain(t *testing.T) {
	for name, server := range map[string]func(t *testing.T) string{
		"memory": func(*testing.T) string { return "mem://" },
		"rabbit": func(t *testing.T) string { return testserver.RequireRabbit(t).URL() },
		"nats":   func(t *testing.T) string { return testserver.RequireNATS(t).URL() },
		"redis":  func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
		"sqlite": func(t *testing.T) string { return sqlURLs(t)["sqlite"] },
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, server(t)+"?retain=1h&namespace="+testserver.Namespace(), open.Options{Retain: events.Retention{Max: 1000}})
			roundTrip(t, s, s)
			r, ok := s.Events.(events.Retainer)
			if !ok {
				t.Fatalf("%T keeps no events", s.Events)
			}
			sub, err := r.Replay(t.Context(), events.Filter{Types: []string{events.TaskSucceeded}}, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			if e, err := sub.Receive(t.Context()); err != nil || e.Name != "" && e.Name != double.Name() {
				t.Errorf("the kept event is %+v, %v", e, err)
			}
			if err := sub.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
