package pages_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/inspect"
)

// TestRunAgain edits the arguments of a task: the form has them exactly, and keeps a text that is
// not valid JSON.
func TestRunAgain(t *testing.T) {
	api := hostile(t)
	s := serve(t, api, nil)
	form := url.Values{"do": {"run-task"}, "id": {"x"}, "queue": {"q"}}
	status, body := send(t, s, http.MethodPost, "act", form)
	sound(t, body)
	if status != http.StatusOK || !strings.Contains(body, "<textarea") || !strings.Contains(body, "9007199254740993") {
		t.Errorf("the form: %d %s", status, body)
	}
	form.Set("confirmed", "yes")
	form.Set("args", `{"half</textarea>`)
	status, body = send(t, s, http.MethodPost, "act", form)
	sound(t, body)
	if status != http.StatusBadRequest || !strings.Contains(body, "{&#34;half&lt;/textarea&gt;</textarea>") || len(api.made()) != 0 {
		t.Errorf("no JSON: %d %s", status, body)
	}
	form.Set("args", " ")
	status, body = send(t, s, http.MethodPost, "act", form)
	sound(t, body)
	if status != http.StatusBadRequest || !strings.Contains(body, "empty, which is not JSON") || len(api.made()) != 0 {
		t.Errorf("empty arguments: %d %s", status, body)
	}
	form.Set("args", `{"whole":1}`)
	status, body = send(t, s, http.MethodPost, "act", form)
	sound(t, body)
	if status != http.StatusOK || len(api.made()) != 1 || strings.Contains(body, "whole") {
		t.Errorf("edited arguments: %d, made %v, %s", status, api.made(), body)
	}
	// the task of the page has a reason against it
	if _, body := get(t, s, "task?id=x"); !strings.Contains(body, "disabled title") {
		t.Error("the page of a task without a message offers to run it again")
	}
}

// TestSentTwice sends the form of a button twice, through the question if there is one: both
// requests have the key of the rendered page, and the page rendered next has another one.
func TestSentTwice(t *testing.T) {
	for what, page := range map[string]string{"run-schedule": "schedules", "run-task": "letter?queue=q&id=x"} {
		api := hostile(t)
		s := serve(t, api, nil)
		keyOf := func(path string) string {
			_, body := get(t, s, path)
			_, form, _ := strings.Cut(body, `name="do" value="`+what+`"`)
			_, key, ok := strings.Cut(form, `name="key" value="`)
			key, _, _ = strings.Cut(key, `"`)
			if !ok || key == "" {
				t.Fatalf("the page %s has no key of %s: %s", path, what, body)
			}
			return key
		}
		key := keyOf(page)
		form := url.Values{"do": {what}, "id": {"x"}, "queue": {"q"}, "key": {key}}
		if what == "run-task" {
			if _, body := send(t, s, http.MethodPost, "act", form); !strings.Contains(body, `name="key" value="`+key+`"`) {
				t.Errorf("the question has lost the key: %s", body)
			}
			form.Set("confirmed", "yes")
		}
		for range 2 {
			status, body := send(t, s, http.MethodPost, "act", form)
			sound(t, body)
			if status != http.StatusOK || !strings.Contains(body, "This form was sent before") {
				t.Errorf("%s: %d %s", what, status, body)
			}
		}
		if !slices.Equal(api.keys, []string{key, key}) {
			t.Errorf("%s: the keys of two requests are %q, want %q", what, api.keys, key)
		}
		if keyOf(page) == key {
			t.Errorf("%s: two pages have the same key", what)
		}
	}
}

// retried is an API with a task whose first attempt has failed.
type retried struct{ *system }

func (retried) GetTask(context.Context, inspect.TaskKey) (inspect.TaskDetail, error) {
	return inspect.TaskDetail{Timeline: []inspect.Step{{Event: "started"}, {Event: "retried"}, {Event: "succeeded"}}}, nil
}

// TestTimeline shows that each step of a timeline has a mark, also a failed attempt.
func TestTimeline(t *testing.T) {
	_, body := get(t, serve(t, retried{hostile(t)}, nil), "task?id=x")
	for _, class := range []string{"busy", "warn", "good"} {
		if n := strings.Count(body, `<li class="`+class+`"><span class="what">`); n != 1 {
			t.Errorf("%d steps of the timeline have the mark %s, want 1", n, class)
		}
	}
}
