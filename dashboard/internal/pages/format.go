package pages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

// functions returns the functions of templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"since": since, "dur": dur, "num": num, "badge": badge, "link": link, "do": do, "withInput": withInput, "indent": indent, "short": short, "shortID": shortID,
		"join":   func(all []string) string { return strings.Join(all, ", ") },
		"helpOf": helpOf, "workerState": workerState, "quietWorker": quietWorker, "queueState": queueState, "eventState": eventState, "quote": quote,
		"reasons":        func(v *view, e inspect.Explanation) reasonsView { return reasonsView{v, e} },
		"runs":           func(v *view, p inspect.RunningPage) runsView { return runsView{v, p} },
		"deref":          func(p *inspect.RunningPage) inspect.RunningPage { return *p },
		"hundred":        func(part float64) float64 { return 100 * part },
		"workflowStates": inspect.WorkflowStates,
		"percent":        percent, "bars": bars, "columns": columns, "chart": chart, "pager": func(v *view, next string) pager { return pager{v, next} },
	}
}

// moment is a time for the template "time".
type moment struct {
	Text, ISO, Full string
}

// since returns t beside now: "5 min ago", "in 2 h". Zero is "".
func since(now, t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	m := moment{ISO: t.UTC().Format(time.RFC3339), Full: t.UTC().Format("2006-01-02 15:04:05 UTC")}
	d := now.Sub(t)
	switch {
	case d < -2*time.Second:
		m.Text = "in " + rough(-d)
	case d < 2*time.Second:
		m.Text = "now"
	default:
		m.Text = rough(d) + " ago"
	}
	return m
}

// rough returns a duration with one unit.
func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + " d"
}

// dur returns a duration with three digits or less. 0 is "".
func dur(d inspect.Duration) string {
	v := time.Duration(d)
	switch {
	case v == 0:
		return ""
	case v < time.Millisecond:
		return v.Round(time.Microsecond).String()
	case v < 10*time.Second:
		return v.Round(time.Millisecond).String()
	}
	return v.Round(time.Second).String()
}

// num returns a count: "?" for one that is not known.
func num(n any) string {
	text := fmt.Sprint(n)
	if strings.HasPrefix(text, "-") {
		return "?"
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// link returns the address of a page with parameters: name, value, name, value.
func link(page string, params ...any) string {
	q := make(url.Values)
	for i := 0; i+1 < len(params); i += 2 {
		if v := fmt.Sprint(params[i+1]); v != "" {
			q.Set(fmt.Sprint(params[i]), v)
		}
	}
	if len(q) == 0 {
		return page
	}
	return page + "?" + q.Encode()
}

// indent returns JSON over several lines, with its numbers as they are. Other text stays as it is.
func indent(text any) string {
	var data []byte
	switch t := text.(type) {
	case string:
		data = []byte(t)
	case json.RawMessage:
		data = t
	default:
		return fmt.Sprint(text)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return string(data)
	}
	return out.String()
}

// short returns the beginning of a text, for lists.
func short(n int, text string) string {
	for i := range text {
		if n--; n < 0 {
			return text[:i] + "…"
		}
	}
	return text
}

// Lengths of the parts of a short id, in bytes. Ids that begin with a time differ at their ends.
const (
	longID = 24
	idHead = 8
	idTail = 10
)

// shortID returns the beginning and the end of a long id, for lists.
func shortID(id any) string {
	text := fmt.Sprint(id)
	if len(text) <= longID {
		return text
	}
	return strings.ToValidUTF8(text[:idHead], "") + "…" + strings.ToValidUTF8(text[len(text)-idTail:], "")
}

// percent returns done of total as a text, or "" if the total is not known.
func percent(done, total int64) string {
	if total <= 0 {
		return ""
	}
	return strconv.Itoa(int(100*float64(done)/float64(total))) + " %"
}

// pager holds the data of the template "pager".
type pager struct {
	*view
	Next string
}
