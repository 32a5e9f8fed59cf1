package events_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
)

func worker() *events.Worker {
	return &events.Worker{
		Hostname: "host-1.example", Role: events.RoleConsumer, Freq: 2 * time.Second, Ident: "swarmiji", Version: "v1.2.3", System: "linux/amd64",
		Active: 3, Processed: 1234567, Load: 0.25, Mem: 0.61234,
	}
}

// Promises: S40.
func TestWireFormatOfWorkers(t *testing.T) {
	observed := worker()
	observed.Observer, observed.Load, observed.Mem = "host-2-cd", -1, -1
	queued := worker()
	queued.Queues = []string{"mail", "a \"b\""}
	data, err := events.Encode([]events.Event{{Type: events.WorkerHeartbeat, NodeID: "host-1-ab", Time: time.UnixMilli(1795190645678), Worker: queued}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/worker-queues.golden", string(data)+"\n")
	var b strings.Builder
	for _, e := range []events.Event{
		{Type: events.WorkerOnline, NodeID: "host-1-ab", Time: time.UnixMilli(1795190645678), Worker: worker()},
		{Type: events.WorkerHeartbeat, NodeID: "host-1-ab", Time: time.UnixMilli(1795190645678), Worker: worker(), Fields: map[string]any{"zone": "b", "load": 99, "hostname": "x"}},
		{Type: events.WorkerOffline, NodeID: "host-1-ab", Time: time.UnixMilli(1795190645678), Worker: observed},
	} {
		data, err := events.Encode([]events.Event{e})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(data)
		b.WriteByte('\n')
	}
	golden(t, "testdata/worker.golden", b.String())
}

// The test checks the names of S38 and S39.
func TestNamesOfWorkerEvents(t *testing.T) {
	want := []string{
		"active", "freq", "hostname", "load", "mem", "node-id", "processed", "role", "sw_ident", "sw_sys", "sw_ver", "timestamp", "type", "zone",
	}
	for _, typ := range events.WorkerTypes() {
		data, err := events.Encode([]events.Event{{
			Type: typ, NodeID: "n", Time: time.Now(), Worker: worker(), Name: "not of this type", PID: 1,
			Fields: map[string]any{"zone": "b", "sw_ver": "stolen", "active": 99, "timestamp": 1, "task-id": "stolen"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var got []map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got[0]))); diff != "" {
			t.Errorf("names of %s (-want +got):\n%s", typ, diff)
		}
		for name, value := range map[string]any{"freq": 2000.0, "sw_ver": "v1.2.3", "active": 3.0, "processed": 1234567.0, "load": 0.25, "mem": 0.6123} {
			if got[0][name] != value {
				t.Errorf("%s of %s is %v, want %v", name, typ, got[0][name], value)
			}
		}
	}
}

func TestFieldsNamedLikeAWorkersStayInOtherEvents(t *testing.T) {
	e := events.Event{Type: "my-event", Fields: map[string]any{"active": "yes", "load": 7.0}, Worker: worker()}
	n := e
	err := events.Normalize(&n)
	if err != nil {
		t.Fatal(err)
	}
	want := events.Event{Type: "my-event", Fields: e.Fields}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeOfForeignWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want *events.Worker // nil: refused
	}{
		"little":        {`{"type":"worker-online","hostname":"h"}`, &events.Worker{Hostname: "h", Load: -1, Mem: -1}},
		"the type last": {`{"load":0.5,"freq":500.9,"type":"worker-heartbeat"}`, &events.Worker{Freq: 500 * time.Millisecond, Load: 0.5, Mem: -1}},
		"overload":      {`{"type":"worker-heartbeat","load":12.5,"mem":1e300,"sw_ver":null}`, &events.Worker{Load: 1, Mem: 1}},
		"long":          {`{"type":"worker-offline","hostname":"` + strings.Repeat("h", 999) + `"}`, &events.Worker{Hostname: strings.Repeat("h", 256), Load: -1, Mem: -1}},
		"queues":        {`{"type":"worker-heartbeat","queues":["a","b"]}`, &events.Worker{Load: -1, Mem: -1, Queues: []string{"a", "b"}}},
		"no queues":     {`{"type":"worker-heartbeat","queues":[],"active":1}`, &events.Worker{Load: -1, Mem: -1, Active: 1}},
		"queue 1":       {`{"type":"worker-heartbeat","queues":[1]}`, nil},
		"queue text":    {`{"type":"worker-heartbeat","queues":"a"}`, nil},
		"text load":     {`{"type":"worker-heartbeat","load":"high"}`, nil},
		"below 0":       {`{"type":"worker-heartbeat","active":-1}`, nil},
		"forever":       {`{"type":"worker-heartbeat","freq":1e18}`, nil},
		"no integer":    {`{"type":"worker-heartbeat","processed":1e300}`, nil},
		"list":          {`{"type":"worker-heartbeat","hostname":[]}`, nil},
	} {
		got, err := events.Decode([]byte(c.in))
		if c.want == nil {
			if !errors.Is(err, events.ErrMalformed) {
				t.Errorf("%s: %+v, %v; want ErrMalformed", name, got, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, got[0].Worker); diff != "" || got[0].Fields != nil {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, got[0].Fields)
		}
	}
}
