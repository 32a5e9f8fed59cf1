package open_test

import (
	"net/url"
	"testing"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
)

// Broker, results and events from three servers, named in the options or in one URL.
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
