package browsertest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// flow is a path of a person through the dashboard, with its effects on the system.
type flow struct {
	name, explain string
	run           func(w *world, b *tab)
	thorough      bool // not in "make test"
}

func flows() []flow {
	return []flow{
		{"RequeueGroup", "The group of failures among many tasks is found on the overview, and requeued.", requeueGroup, false},
		{"RetryFilter", "The dead letters of a filter are counted and requeued, and no other.", retryFilter, false},
		{"PauseOnPhone", "A queue is paused and resumed in a window of 360 px.", pauseOnPhone, false},
		{"RunSchedule", "An entry of the schedule runs now.", runSchedule, false},
		{"RunEdited", "A dead task runs again with edited arguments, whose large number stays exact.", runEdited, false},
		{"CancelWorkflow", "A running workflow is cancelled.", cancelWorkflow, false},
		{"Scale", "The number of workers of a queue is changed.", scale, false},
		{"Interrupted", "A stream that was interrupted shows each event once.", interrupted, false},
		{"Roles", "Each action is offered to its roles, and refused to the others.", roles, false},
		{"DeepLinks", "Each view has an address; back and forward work.", deepLinks, false},
		{"Prefix", "All works below a prefix.", prefix, false},
		{"Keyboard", "The search and the help are reached by keys.", keyboard, false},
		{"Purge", "A purge asks for the name of the queue.", purge, true},
		{"DropFilter", "Dropping the letters of a filter asks for the name of the queue.", dropFilter, true},
		{"RetryWorkflow", "The failed steps of a workflow run again.", retryWorkflow, true},
		{"CancelRunning", "A running task shows its progress, and is cancelled.", cancelRunning, true},
		{"QuietWorker", "A worker takes no new task until it is told.", quietWorker, true},
		{"Jobs", "A job is found by a filter, cancelled, run again and removed.", jobsFlow, true},
		{"PauseName", "The tasks of a name are paused and resumed.", pauseName, true},
		{"Limit", "A queue gets a limit and loses it.", limitQueue, true},
		{"ReadOnly", "A read-only dashboard offers nothing.", readOnly, true},
		{"HideArguments", "The pages of a task and of its dead letter hide its arguments.", hideArguments, true},
		{"NoScript", "The pages and the changes work without the script.", noScript, true},
		{"RemoveEntry", "An entry is paused, resumed and removed.", removeEntry, true},
		{"Audit", "The audit log names the user and the change.", audit, true},
		{"EventFilter", "The events are filtered.", eventFilter, true},
	}
}

// past is the number of past tasks among which the flows find theirs.
func past() int {
	if testserver.IsThorough() {
		return 100_000
	}
	return 2_000
}

// TestFlows runs each flow over each server, all in one system.
func TestFlows(t *testing.T) {
	t.Parallel()
	for name, url := range servers(t) {
		t.Run(name, func(t *testing.T) {
			shared.require(t)
			w := newWorld(t, url(t))
			w.seed(past(), 0)
			for _, f := range flows() {
				if f.thorough && !testserver.IsThorough() {
					continue
				}
				t.Run(f.name, func(t *testing.T) {
					t.Cleanup(func() {
						if t.Failed() {
							t.Log("why: " + f.explain)
						}
					})
					here := *w // the parts of w, and this test
					here.T = t
					began := time.Now()
					f.run(&here, newTab(t, w.base))
					t.Logf("%v", time.Since(began).Round(time.Millisecond))
				})
			}
		})
	}
}
