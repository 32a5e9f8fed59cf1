package pages_test

import (
	"context"
	"net/http"
	"net/url"
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
