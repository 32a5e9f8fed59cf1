package settings_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
)

// TestUnknownFields shows that fields of a newer writer stay when this version changes a value, and
// that fields of this version can be removed.
func TestUnknownFields(t *testing.T) {
	ctx := t.Context()
	s := memsettings.New()
	defer s.Close(ctx)
	stored := `{"by":"a","why":"b","until":"2030-01-01T00:00:00Z","color":{"deep":[1,2]}}`
	if _, err := s.Put(ctx, "queue/q/pause", []byte(stored), 0); err != nil {
		t.Fatal(err)
	}
	if err := settings.PauseQueue(ctx, s, "q", settings.Pause{By: "c", At: time.Unix(1, 0).UTC()}); err != nil {
		t.Fatal(err)
	}
	v, err := s.Get(ctx, "queue/q/pause")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(v.Data, &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"by":"c","at":"1970-01-01T00:00:01Z","color":{"deep":[1,2]}}`), &want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBadValues shows that a value that cannot be read is named and counts as not set, and that
// unknown keys are ignored.
func TestBadValues(t *testing.T) {
	s := settings.Read([]settings.Value{
		{Key: "queue/q/pause", Data: []byte(`{"by":7}`)},
		{Key: "queue/r/pause", Data: []byte(`{}`)},
		{Key: "queue/q/color", Data: []byte(`x`)},
		{Key: "aside/q/mail", Revision: 3},
		{Key: "one"},
	})
	if diff := cmp.Diff([]string{"queue/q/pause"}, s.Bad); diff != "" {
		t.Errorf("bad keys (-want +got):\n%s", diff)
	}
	if _, set := s.QueuePauses["q"]; set || len(s.QueuePauses) != 1 || s.Aside["q/mail"] != 3 {
		t.Errorf("%+v", s)
	}
}

// TestRefused shows that invalid values are refused and store nothing.
func TestRefused(t *testing.T) {
	ctx := t.Context()
	s := memsettings.New()
	defer s.Close(ctx)
	now := time.Now()
	for name, err := range map[string]error{
		"a queue":       settings.PauseQueue(ctx, s, "a b", settings.Pause{}),
		"a long reason": settings.PauseQueue(ctx, s, "q", settings.Pause{Why: strings.Repeat("x", settings.MaxWhy+1)}),
		"an end":        settings.PauseTask(ctx, s, "q", settings.Pause{At: now, Until: now.Add(-time.Second)}),
		"a rate":        settings.LimitTask(ctx, s, "q", settings.Limit{Rate: "fast"}),
		"a high rate":   settings.LimitTask(ctx, s, "q", settings.Limit{Rate: "2000000/s"}),
		"a concurrency": settings.LimitQueue(ctx, s, "q", settings.Limit{Concurrency: -1}),
		"workers":       settings.ServeQueue(ctx, s, "g", "q", settings.Served{Workers: -1}),
		"a group":       settings.ServeQueue(ctx, s, "", "q", settings.Served{}),
	} {
		if !errors.Is(err, settings.ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := s.List(ctx, ""); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}
