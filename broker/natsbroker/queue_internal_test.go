package natsbroker

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
)

// TestRecord shows that a record comes back, and that a version without fair queues refuses that of
// a fair queue.
func TestRecord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		q    broker.Queue
		want string
	}{
		{broker.Queue{}, `{}`},
		{broker.Queue{Levels: []int{10, 100}}, `{"levels":[10,100]}`},
		{broker.Queue{Fair: true}, `{"levels":{"fair":[]}}`},
		{broker.Queue{Fair: true, Levels: []int{10, 100}}, `{"levels":{"fair":[10,100]}}`},
	} {
		data, err := recordOf(tt.q)
		if err != nil {
			t.Fatalf("%+v: %v", tt.q, err)
		}
		got, ok := parseRecord(data)
		if string(data) != tt.want || !ok || got.Fair != tt.q.Fair || !slices.Equal(got.Levels, tt.q.Levels) {
			t.Errorf("%+v: record %s, read as %+v, %v", tt.q, data, got, ok)
		}
		var older struct {
			Levels []int `json:"levels"`
		}
		if err := json.Unmarshal(data, &older); (err != nil) != tt.q.Fair {
			t.Errorf("an older version reads the record %s with the error %v", data, err)
		}
	}
	for _, bad := range []string{``, `[]`, `{"levels":7}`, `{"levels":[2,1]}`, `{"levels":{}}`, `{"levels":{"fair":null}}`, `{"levels":{"fair":[2,2]}}`, `{"levels":"fair"}`} {
		if q, ok := parseRecord([]byte(bad)); ok {
			t.Errorf("the record %s is read as %+v", bad, q)
		}
	}
}
