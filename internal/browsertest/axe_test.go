package browsertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"

	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/task"
)

// size is a window.
type size struct {
	width, height int64
	scheme        string
}

// TestAccessible looks at each page with axe-core, which must find nothing, and checks that no page
// is wider than its window.
func TestAccessible(t *testing.T) {
	t.Parallel()
	shared.require(t)
	script := axe(t)
	w := newWorld(t, sqlite(t))
	w.seed(500, 50)
	e := w.prepare()
	pages := append(e.pages(), "no-such-page", "task?id=never", "tasks?query=state%3Anonsense", "dead?queue="+ordersQueue+"&name=none")
	sizes := []size{{1280, 900, "light"}}
	if testserver.IsThorough() {
		sizes = append(sizes, size{1280, 900, "dark"}, size{360, 740, "light"}, size{360, 740, "dark"})
	}
	viewer := w.serve(dashboard.Config{ReadOnly: true}, "/", nil)
	b := newTab(t, w.base)
	for i, s := range sizes {
		b.window(s.width, s.height, 1, s.scheme)
		for _, page := range pages {
			b.open(page)
			b.accessible(script, fmt.Sprint(s, " ", page))
		}
		// pages that are not reached by an address: a question, its wrong answer, a result, the help
		b.open("queue?name=" + spareQueue)
		b.click(".actions", "Purge…")
		b.titled("Purge the queue")
		b.accessible(script, fmt.Sprint(s, " a question"))
		b.fill("#typed", "wrong")
		b.click("main", "Purge the queue")
		b.sees("This is not the same text.")
		b.accessible(script, fmt.Sprint(s, " a wrong answer"))
		b.open("worker?node=" + node)
		b.fill(`#serves tr:has(a[href="queue?name=mail"]) input[name="workers"]`, fmt.Sprint(3+i))
		b.click(`#serves tr:has(a[href="queue?name=mail"])`, "Scale")
		b.sees("Done.")
		b.accessible(script, fmt.Sprint(s, " a result"))
		b.open("queues")
		b.press("?")
		b.until("the help is open", `document.querySelector('#help').open`)
		b.accessible(script, fmt.Sprint(s, " the help"))
		// disabled buttons with their reason
		base := b.base
		b.base = viewer
		b.open("queue?name=" + ordersQueue)
		b.accessible(script, fmt.Sprint(s, " read-only"))
		b.base = base
		// events that have come
		b.open("events")
		b.live()
		w.untilState(inspect.State(task.StateSucceeded), submit(w, addTask, i))
		b.until("an event is shown", `document.querySelector('#tail tbody a')`)
		b.accessible(script, fmt.Sprint(s, " events"))
	}
}

// accessible fails the test if axe finds something on the page, or if the page is wider than the
// window.
func (b *tab) accessible(script, what string) {
	b.Helper()
	b.fits()
	call(b, runtime.Evaluate, runtime.EvaluateParams{Expression: script})
	for _, found := range eval[[]string](b, `axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) =>
  v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? '')).join(' | ')))`) {
		b.Errorf("%s: %s", what, found)
	}
}

// axe returns the script of axe-core, whose checksum is that of its release.
func axe(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("testdata", "axe")
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	script := ""
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has another checksum than in SHA256SUMS", name)
		}
		if strings.HasSuffix(name, ".js") {
			script = string(data)
		}
	}
	return script
}
