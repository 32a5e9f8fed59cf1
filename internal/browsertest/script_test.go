package browsertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"

	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// TestScript tests the script of the pages, app.js, with real streams.
func TestScript(t *testing.T) {
	t.Parallel()
	shared.require(t)
	w := newWorld(t, sqlite(t))
	g := new(gate)
	base := w.serve(dashboard.Config{}, "/", g)
	submit(w, spareTask, 0)
	for name, f := range map[string]func(w *world, b *tab, g *gate){
		"Reconnect": scriptReconnect, "Hidden": scriptHidden, "Pointer": scriptPointer, "Typing": scriptTyping, "Banner": scriptBanner,
		"Pause": scriptPause, "Numbers": scriptNumbers, "Tail": scriptTail, "Zone": scriptZone, "Copy": scriptCopy,
		"Failed": scriptFailed, "Late": scriptLate,
	} {
		t.Run(name, func(t *testing.T) {
			here := *w
			here.T = t
			b := newTab(t, base)
			f(&here, b, g)
			b.open("no-such-page") // ends the stream
			b.until("the stream has ended", `document.readyState === 'complete'`)
		})
	}
}

// waiting is the number of tasks in spareQueue that the page of queues shows.
const waiting = `Number(document.querySelector('#list tr:has(a[href="queue?name=spare"]) td.n').innerText)`

// grow adds a task that the page of queues will show, and returns its number of tasks before.
func grow(w *world, b *tab) (before int) {
	w.Helper()
	before = eval[int](b, waiting)
	submit(w, spareTask, 1)
	return before
}

// reloaded waits until the page has loaded itself again.
func (b *tab) reloaded(before string) {
	b.Helper()
	b.until("the page is loaded again", `document.querySelector('#loaded').textContent !== `+quote(before))
}

func (b *tab) loaded() string {
	b.Helper()
	return eval[string](b, `document.querySelector('#loaded').textContent`)
}

// hide tells the page that its tab is hidden or shown. A browser without a screen hides no tab.
func (b *tab) hide(hidden bool) {
	b.Helper()
	eval[bool](b, fmt.Sprintf(`(() => {
  Object.defineProperty(document, 'hidden', { get: () => %t, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
  return true;
})()`, hidden))
}

// shownTasks are the tasks of the rows of the page of events.
const shownTasks = `[...document.querySelectorAll('#tail tbody a[href^="task?"]')].map((a) => a.textContent)`

// each fails the test unless the page of events shows each task once.
func (b *tab) each(want []string) {
	b.Helper()
	b.until(fmt.Sprint(len(want), " events are shown"), fmt.Sprint(shownTasks, ".length >= ", len(want)))
	got := eval[[]string](b, shownTasks)
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		b.Errorf("the events are %v, want each of %v once", got, want)
	}
}

// scriptReconnect interrupts a stream: the browser sends the last id when it connects again.
func scriptReconnect(w *world, b *tab, g *gate) {
	b.open("events?type=task-sent")
	b.live()
	var want []string
	for range 3 {
		want = append(want, string(submit(w, addTask, 1)))
		b.each(want)
		again := g.cut()
		want = append(want, string(submit(w, addTask, 1)))
		again()
		b.each(want)
		if last := g.last(); strings.HasSuffix(last, " ") {
			b.Errorf("the browser came again with %q, without the last id", last)
		}
	}
}

// scriptHidden hides the tab: it has no stream then, and misses nothing when it is shown again.
func scriptHidden(w *world, b *tab, g *gate) {
	b.open("events?type=task-sent")
	b.live()
	want := []string{string(submit(w, addTask, 1))}
	b.each(want)
	b.hide(true)
	w.until("the stream is closed", func() bool { return g.streams() == 0 })
	for range 5 {
		want = append(want, string(submit(w, addTask, 1)))
	}
	b.each(want[:1])
	b.hide(false)
	b.each(want)
	if last := g.last(); !strings.Contains(last, "after=") {
		b.Errorf("the tab came again with %q, without the last id", last)
	}
	b.open("queues")
	b.live()
	b.hide(true)
	w.until("the stream is closed", func() bool { return g.streams() == 0 })
	before := grow(w, b)
	b.hide(false)
	b.until("the page is loaded again", fmt.Sprint(waiting, " === ", before+1))
}

// scriptPointer has the pointer over a row: it stays until the pointer has left.
func scriptPointer(w *world, b *tab, _ *gate) {
	b.open("queues")
	b.live()
	at := b.find(`#list tr:has(a[href="queue?name=spare"]) td.n`, "")
	b.mouse(input.DispatchMouseEventTypeMouseMoved, at)
	b.until("the pointer is over the list", `document.querySelector('#list').matches(':hover')`)
	row := eval[string](b, `(window.row = document.elementFromPoint(`+fmt.Sprint(at.X, ",", at.Y)+`).closest('tr')).innerText`)
	loaded := b.loaded()
	before := grow(w, b)
	b.reloaded(loaded)
	if got := eval[string](b, `document.elementFromPoint(`+fmt.Sprint(at.X, ",", at.Y)+`).closest('tr') === window.row ? window.row.innerText : 'another row'`); got != row {
		b.Errorf("the row under the pointer was %q and is %q", row, got)
	}
	b.leave()
	b.until("the row has changed", fmt.Sprint(waiting, " === ", before+1))
}

// scriptTyping fills a field in a part that is live: the text and the focus stay.
func scriptTyping(w *world, b *tab, _ *gate) {
	b.open("worker?node=" + node)
	b.live()
	const field = `#serves tr:has(a[href="queue?name=mail"]) input[name="workers"]`
	b.fill(field, "7")
	b.leave()
	loaded := b.loaded()
	// the number of processed tasks changes
	w.untilState(inspect.State(task.StateSucceeded), submit(w, addTask, 1))
	b.reloaded(loaded)
	if got := eval[string](b, `document.activeElement === document.querySelector(`+quote(field)+`) ? document.activeElement.value : 'no focus'`); got != "7" {
		b.Errorf("the field with the text 7 has %q", got)
	}
}

// scriptBanner takes the connection away: the page says so, and is loaded again afterwards.
func scriptBanner(w *world, b *tab, g *gate) {
	b.open("queues")
	b.live()
	again := g.cut()
	b.until("the banner is shown", `document.querySelector('#away').checkVisibility() && document.querySelector('#live-text').innerText === 'Connection lost'`)
	before := grow(w, b)
	again()
	b.until("the banner is gone", `!document.querySelector('#away').checkVisibility()`)
	b.live()
	b.until("the page is loaded again", fmt.Sprint(waiting, " === ", before+1))
}

// scriptPause pauses the page with its button.
func scriptPause(w *world, b *tab, g *gate) {
	b.open("queues")
	b.live()
	b.click(".tools", "Pause")
	w.until("the stream is closed", func() bool { return g.streams() == 0 })
	b.until("the page is paused", `document.querySelector('#live-text').innerText === 'Paused' && document.querySelector('#pause').getAttribute('aria-pressed') === 'true'`)
	loaded := b.loaded()
	before := grow(w, b)
	b.hide(true)
	b.hide(false) // a tab that is shown again is still paused
	if b.loaded() != loaded || eval[int](b, waiting) != before || g.streams() != 0 {
		b.Error("a paused page was loaded again")
	}
	b.click(".tools", "Resume")
	b.live()
	b.until("the page is loaded again", fmt.Sprint(waiting, " === ", before+1))
}

// scriptNumbers checks that the page of events rounds no number beyond 2^53, neither in a text nor
// when it compares two events.
func scriptNumbers(w *world, b *tab, _ *gate) {
	b.open("events?type=task-sent")
	b.live()
	submit(w, chargeTask, order{big, "c-1"})
	b.sees(fmt.Sprint(big))
	// of two events whose numbers a float does not tell apart, both are shown
	b.until("both events are shown", `(() => {
  const before = tail.tBodies[0].rows.length;
  lastSeq = null;
  for (const seq of ['9007199254740992', '9007199254740993', '9007199254740993']) addEvent({ seq, at: new Date().toISOString(), type: 'task-sent', sign: '', class: '' });
  return tail.tBodies[0].rows.length === before + 2;
})()`)
}

// scriptTail adds more events than the page keeps, and a gap.
func scriptTail(_ *world, b *tab, _ *gate) {
	b.open("events?type=never")
	b.live()
	if n := eval[int](b, `(() => {
  for (let i = 1; i <= 600; i++) addEvent({ seq: String(i), at: new Date().toISOString(), type: 'never', name: 'n' + i, sign: '', class: '' });
  return tail.tBodies[0].rows.length;
})()`); n != 500 {
		b.Errorf("%d rows are kept", n)
	}
	if got := eval[string](b, `tail.tBodies[0].rows[0].cells[3].innerText`); got != "n600" {
		b.Errorf("the first row is %s, want the newest", got)
	}
	eval[bool](b, `(missed(), addEvent({ seq: '1', at: new Date().toISOString(), type: 'never', name: 'of a new process', sign: '', class: '' }), true)`)
	b.sees("Events before this line are missing.")
	b.sees("of a new process")
}

// scriptZone shows times in the zone of the reader.
func scriptZone(w *world, b *tab, _ *gate) {
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	id := submit(w, addTask, 1)
	w.untilRecorded(id)
	b.open("task?id=" + string(id))
	got := strings.Split(eval[string](b, `document.querySelector('#timeline time').title`), "\n")
	got[0] = strings.ReplaceAll(got[0], "\u202f", " ") // before PM
	if len(got) != 2 {
		b.Fatalf("the title of a time is %q", got)
	}
	utc, err := time.Parse(time.RFC3339, got[1])
	if err != nil {
		b.Fatal(err)
	}
	local := utc.Add(9 * time.Hour)
	if !strings.Contains(got[0], local.Format("15:04:05")) && !strings.Contains(got[0], local.Format("3:04:05 PM")) {
		b.Errorf("the local time is %q, want %v", got[0], local)
	}
}

// scriptCopy copies the command of a page.
func scriptCopy(_ *world, b *tab, _ *gate) {
	b.open("queues")
	b.click(".bottom", "Copy")
	b.until("the button says so", `['Copied', 'Not allowed'].includes(document.querySelector('.copy').innerText)`)
	b.until("the button is as before", `document.querySelector('.copy').innerText === 'Copy'`)
}

// faulty is an API of which two methods fail while it is down.
type faulty struct {
	inspect.API
	down atomic.Bool
}

func (f *faulty) fails() error {
	if f.down.Load() {
		return &inspect.Error{Code: inspect.CodeUnavailable, Text: "the broker is down"}
	}
	return nil
}

func (f *faulty) ListQueues(ctx context.Context, q inspect.QueueQuery) (inspect.QueuePage, error) {
	if err := f.fails(); err != nil {
		return inspect.QueuePage{}, err
	}
	return f.API.ListQueues(ctx, q)
}

func (f *faulty) ListEvents(ctx context.Context, q inspect.EventQuery) (inspect.EventPage, error) {
	if err := f.fails(); err != nil {
		return inspect.EventPage{}, err
	}
	return f.API.ListEvents(ctx, q)
}

// scriptFailed opens pages while the API fails: they are shown and live when it answers again.
func scriptFailed(w *world, b *tab, _ *gate) {
	api := &faulty{API: w.api}
	api.down.Store(true)
	base := w.serve(dashboard.Config{API: api}, "/", nil)
	list, tail := newTab(b.T, base), newTab(b.T, base)
	list.open("queues")
	list.sees("the broker is down")
	tail.open("events?type=task-sent")
	tail.sees("the broker is down")
	api.down.Store(false)
	list.live()
	list.until("the list is shown", waiting+" >= 0")
	before := grow(w, list)
	list.until("the list is live", fmt.Sprint(waiting, " === ", before+1))
	tail.until("the page has the stream of events", `source?.url.includes('all=1') && source.readyState === EventSource.OPEN`)
	tail.sees(string(submit(w, addTask, 1)))
}

// scriptLate opens the page of a task that is submitted later: parts that were missing appear.
func scriptLate(w *world, b *tab, _ *gate) {
	b.open("task?id=late")
	b.sees("no part knows task late")
	b.live()
	submit(w, addTask, 1, task.WithID("late"))
	b.until("the task is shown", `document.querySelector('#state')?.innerText.includes('succeeded') && document.querySelector('#facts')`)
}
