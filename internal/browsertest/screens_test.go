package browsertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/page"
)

// screensEnv names the variable with the directory of the pictures. Without it none are taken.
const screensEnv = "SWARMIJI_SCREENSHOTS"

// TestScreenshots takes pictures of each page: light, dark, and on a phone.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv(screensEnv)
	if dir == "" {
		t.Skip(screensEnv + " is not set; make screenshots runs this")
	}
	w := newWorld(t, sqlite(t))
	w.seed(2000, 400)
	e := w.prepare()
	format := page.CaptureScreenshotFormatWebp
	if os.Getenv("SWARMIJI_SCREENSHOTS_PNG") != "" {
		format = page.CaptureScreenshotFormatPng
	}
	quality := int64(70)
	b := newTab(t, w.base)
	for _, s := range []struct {
		name          string
		width, height int64
		scheme        string
	}{{"light", 1280, 800, "light"}, {"dark", 1280, 800, "dark"}, {"phone", 360, 740, "light"}} {
		b.window(s.width, s.height, 1, s.scheme)
		for name, path := range e.pictures() {
			b.open(path)
			if path == "events" {
				b.live()
				submit(w, addTask, 1)
				b.until("events are shown", `document.querySelectorAll('#tail tbody a').length > 5`)
			}
			b.until("the page is live", `!document.querySelector('#live').hidden`)
			shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: format, Quality: &quality})
			file := filepath.Join(dir, name+"-"+s.name+"."+string(format))
			if err := os.WriteFile(file, shot.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
