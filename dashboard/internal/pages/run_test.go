package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
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
