package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestMain(m *testing.M) {
	if suite.ProcessNode() != "" {
		if err := loadProcess(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(closing{m}, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// closing closes the browser after the tests and before the search for leaks.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if err := shared.close(); err != nil {
		fmt.Println("closing the browser:", err)
		code = max(code, 1)
	}
	return code
}

// shared is the browser of all tests. A start takes a second.
var shared browser

// browser is one process of Chromium.
type browser struct {
	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // chromedp's handle of the browser
	end context.CancelFunc
	dir string
}

// require returns the handle of the browser. The first call starts it.
func (b *browser) require(t *testing.T) context.Context {
	t.Helper()
	path := testserver.RequireBrowser(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx != nil {
		return b.ctx
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "swarmiji-browser-"); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(b.dir), chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(time.Minute), chromedp.Env("HOME="+b.dir, "TZ=UTC"), chromedp.Flag("lang", "en-GB"),
	)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx, b.end = ctx, func() { cancel(); end() }
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal("the browser does not start:", err)
	}
	return ctx
}

func (b *browser) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		return nil
	}
	err := chromedp.Cancel(b.ctx)
	b.end()
	if rerr := os.RemoveAll(b.dir); err == nil {
		err = rerr
	}
	return err
}

// tab is a window of the browser with cookies and a cache of its own.
type tab struct {
	*testing.T
	ctx  context.Context //nolint:containedctx // chromedp's handle of the tab
	base string          // URL of the dashboard, with a slash at its end
	wide int64           // width of the window in CSS pixels; 0: not set

	mu       sync.Mutex
	problems []string // errors on the console
}

// newTab opens a tab for the dashboard at base until the test ends. A tab that reported an error on
// its console fails the test.
func newTab(t *testing.T, base string) *tab {
	t.Helper()
	parent := shared.require(t)
	b := &tab{T: t, base: base}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.listen))
	b.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			b.tell()
		}
		closing, end := context.WithTimeout(ctx, 30*time.Second)
		defer end()
		if err := chromedp.Cancel(closing); err != nil {
			t.Log("closing the tab:", err)
		}
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			t.Error("console:", p)
		}
	})
	b.no(chromedp.Do(ctx))
	// several tabs are in use at the same time, and each is as if it had the focus
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return b
}

// listen notes errors on the console, such as those of the Content-Security-Policy. A status of 4xx
// or 5xx and a closed connection are for the test to judge.
func (b *tab) listen(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			problem += " " + x.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			problem = e.Entry.Text
		}
	}
	if problem != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, problem)
	}
}

// tell logs where the tab is, for a failed test.
func (b *tab) tell() {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + '\n' + document.body.innerText`))
	if err != nil {
		b.Log("the page cannot be read:", err)
		return
	}
	b.Logf("the page was %.3000s", text)
}

func (b *tab) no(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// patience limits one step in the browser.
const patience = time.Minute

// call calls a method of the browser for a tab.
func call[P, R any](b *tab, method cdp.Command[P, R], p P) R {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	r, err := chromedp.Call(ctx, method, p)
	b.no(err)
	return r
}

// eval returns the value of an expression in the page, which may be a promise.
func eval[T any](b *tab, script string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%.300s: %v", script, err)
	}
	return v
}

// poll is the time between two looks at a page.
const poll = 30 * time.Millisecond

// until waits for an expression to be true. A page that is being replaced has no value.
func (b *tab) until(what, script string) {
	b.Helper()
	var last time.Time
	testwait.Until(b.T, what, func() bool {
		if time.Since(last) < poll {
			return false
		}
		last = time.Now()
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+script+")", chromedp.EvalAwaitPromise))
		return err == nil && ok
	})
}

// open goes to a page, by its address below the base.
func (b *tab) open(path string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	b.no(chromedp.Do(ctx, chromedp.Navigate(b.base+path)))
}

// quote returns a text as a literal of the page's script.
func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(data)
}

// sees waits until the page shows a text.
func (b *tab) sees(text string) {
	b.Helper()
	b.until("the page shows "+text, "document.querySelector('main')?.innerText.includes("+quote(text)+")")
}

// lacks fails the test if the page shows a text.
func (b *tab) lacks(text string) {
	b.Helper()
	if eval[bool](b, "document.querySelector('main').innerText.includes("+quote(text)+")") {
		b.Errorf("the page shows %q", text)
	}
}

// titled waits for a page with this heading.
func (b *tab) titled(text string) {
	b.Helper()
	b.until("the page is "+text, "document.readyState === 'complete' && document.querySelector('h1')?.innerText === "+quote(text))
}

// at returns the address of the page, relative to the base.
func (b *tab) at() string {
	b.Helper()
	return strings.TrimPrefix(eval[string](b, "location.href"), b.base)
}

// point is a place in the window, in CSS pixels.
type point struct{ X, Y float64 }

// element is a script that finds a link or a button by its text, or an element by a selector.
// It returns null for a missing, a disabled and a covered one.
const element = `(async (scope, label) => {
  const parts = [...document.querySelectorAll(scope)];
  const found = label === '' ? parts[0] : parts.flatMap((p) => [...p.querySelectorAll('a, button, summary')])
    .find((e) => e.innerText.trim() === label && e.checkVisibility());
  if (!found || found.disabled) return null;
  found.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
  await new Promise((done) => requestAnimationFrame(done));
  const r = found.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
  const there = document.elementFromPoint(x, y);
  return there && (found === there || found.contains(there)) ? { X: x, Y: y } : null;
})`

// find waits for a link or button with a text within the elements of a selector, and returns its
// middle. With "" it is the first element of the selector.
func (b *tab) find(scope, label string) (at point) {
	b.Helper()
	var last time.Time
	testwait.Until(b.T, fmt.Sprintf("there is %q in %q", label, scope), func() bool {
		if time.Since(last) < poll {
			return false
		}
		last = time.Now()
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		p, err := chromedp.Run(ctx, chromedp.Evaluate[*point](element+"("+quote(scope)+","+quote(label)+")", chromedp.EvalAwaitPromise))
		if err != nil || p == nil {
			return false
		}
		at = *p
		return true
	})
	return at
}

// mouse sends a movement, a press or a release of the left button.
func (b *tab) mouse(kind input.DispatchMouseEventType, at point) {
	b.Helper()
	p := input.DispatchMouseEventParams{Type: kind, X: at.X, Y: at.Y}
	if kind != input.DispatchMouseEventTypeMouseMoved {
		p.Button, p.ClickCount = input.MouseButtonLeft, 1
	}
	call(b, input.DispatchMouseEvent, p)
}

// click clicks on the element of find, and then takes the pointer away from it.
func (b *tab) click(scope, label string) {
	b.Helper()
	at := b.find(scope, label)
	b.mouse(input.DispatchMouseEventTypeMouseMoved, at)
	b.mouse(input.DispatchMouseEventTypeMousePressed, at)
	b.mouse(input.DispatchMouseEventTypeMouseReleased, at)
	b.leave()
}

// leave moves the pointer to a corner of the window, where no part of a page waits for it.
func (b *tab) leave() {
	b.Helper()
	b.mouse(input.DispatchMouseEventTypeMouseMoved, point{1, 1})
}

// fill replaces the text of a field.
func (b *tab) fill(selector, text string) {
	b.Helper()
	b.find(selector, "")
	eval[bool](b, "(() => { const e = document.querySelector("+quote(selector)+"); e.focus(); e.select(); return true; })()")
	b.types(text)
}

// press presses a key: a character, or one of Enter, Escape and Tab. The page may prevent the
// effect of the key, as with a keyboard.
func (b *tab) press(key string) {
	b.Helper()
	p := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key}
	if code := map[string]int64{"Enter": 13, "Escape": 27, "Tab": 9}[key]; code != 0 {
		p.Code, p.Text, p.WindowsVirtualKeyCode = key, map[string]string{"Enter": "\r"}[key], code
	}
	call(b, input.DispatchKeyEvent, p)
	p.Type, p.Text = input.DispatchKeyEventTypeKeyUp, ""
	call(b, input.DispatchKeyEvent, p)
}

// types types a text into the field that has the focus.
func (b *tab) types(text string) {
	b.Helper()
	call(b, input.InsertText, input.InsertTextParams{Text: text})
}

// window sets the size of the window in CSS pixels, and the colour scheme, light or dark.
func (b *tab) window(width, height int64, scale float64, scheme string) {
	b.Helper()
	b.wide = width
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: scale, Mobile: width < 600})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// fits fails the test if the page is wider than the window.
func (b *tab) fits() {
	b.Helper()
	wide := eval[[]string](b, fmt.Sprintf(`(() => {
  const w = %d;
  if (document.documentElement.scrollWidth <= w && window.innerWidth <= w) return [];
  return [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > w + 1 && !e.closest('.scroll, .menu, pre'))
    .map((e) => e.tagName + '.' + e.className + ' ' + Math.round(e.getBoundingClientRect().right) + ' of ' + w).concat('the page is wider than the window');
})()`, b.wide))
	if len(wide) > 0 {
		b.Errorf("%s: %s", b.at(), strings.Join(wide[:min(len(wide), 5)], "; "))
	}
}

// header sets a header of all requests of the tab.
func (b *tab) header(name, value string) {
	b.Helper()
	call(b, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{name: value}})
}

// live waits until the page has its stream.
func (b *tab) live() {
	b.Helper()
	b.until("the page is live", "document.querySelector('#live-text')?.innerText === 'Live' && document.querySelector('#live').checkVisibility()")
}
