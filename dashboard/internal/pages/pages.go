// Package pages has the web pages of the dashboard: a client of inspect.API alone.
//
// Every page has an address without a folder, so that all links are relative names and the pages
// work below any prefix. There is no script in a page and no state in the server: the address has
// all parameters of a page. A page is loaded again, in place, when events say that something has
// changed.
package pages

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

//go:embed templates static
var files embed.FS

// Config configures [New]. API, User, May and Logger are required.
type Config struct {
	API inspect.API
	// User returns the name of the caller, or "".
	User func(*http.Request) string
	// May returns nil if the caller may make a change, and otherwise the reason.
	May func(r *http.Request, do inspect.Do, target string) error
	// HideArguments says on the pages that arguments are hidden. The API hides them.
	HideArguments bool
	Logger        *slog.Logger
	Version       string
}

// Pages is an http.Handler with all pages. Safe for concurrent use.
type Pages struct {
	c         Config
	api       *shared // c.API, with answers that several callers share
	mux       *http.ServeMux
	templates map[string]*template.Template
	live      *live
}

// page is one address.
type page struct {
	name, title string
	under       string // the page of the menu to which it belongs; its own name: it is in the menu
	// load returns the data of the page, and the line of the program swarmiji that shows the same.
	load func(p *Pages, r *request) (data any, command string, err error)
}

// New returns the pages. It does no I/O. Close them after use.
func New(c Config) (*Pages, error) {
	p := &Pages{c: c, api: newShared(c.API, c.Logger), mux: http.NewServeMux(), templates: make(map[string]*template.Template)}
	p.live = newLive(c.API, p.api.forget, c.Logger)
	all := append(pages(), page{name: "act"})
	for _, one := range all {
		t, err := template.New("layout.html").Funcs(functions()).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+one.name+".html")
		if err != nil {
			return nil, fmt.Errorf("dashboard: %w", err)
		}
		p.templates[one.name] = t
	}
	for _, one := range pages() {
		path := "GET /" + one.name
		if one.name == "overview" {
			path = "GET /{$}"
		}
		p.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { p.show(w, r, &one) })
	}
	p.mux.HandleFunc("POST /act", p.act)
	p.mux.HandleFunc("GET /live", p.live.serve)
	p.mux.Handle("GET /static/", cached(http.FileServerFS(files)))
	p.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.fail(w, r, http.StatusNotFound, &inspect.Error{Code: inspect.CodeNotFound, Text: "There is no such page"})
	})
	return p, nil
}

// Close ends the live streams and the shared reads. Idempotent. Returns ctx's error if they have
// not ended in time.
func (p *Pages) Close(ctx context.Context) error {
	return errors.Join(p.live.close(ctx), p.api.close(ctx))
}

// ServeHTTP serves a page.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// cached lets browsers keep the files below static for a while. They change only with the program.
func cached(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, max-age=300")
		h.ServeHTTP(w, r)
	})
}

// request is a request for a page, with the helpers of loaders.
type request struct {
	*http.Request
	values url.Values
	title  string // of the page, if it has one of its own
	better string // the relative address of the page that the caller looks for; "": this one
}

// value returns a parameter of the address.
func (r *request) value(name string) string { return r.values.Get(name) }

// view holds the data of a template.
type view struct {
	Title, Page   string
	User, Version string
	Command       string   // of the program swarmiji
	Reasons       []reason // why buttons of the page are disabled
	Now           time.Time
	Menu          []menu
	Data          any
	Error         *inspect.Error
	HideArguments bool

	r   *http.Request
	may func(r *http.Request, do inspect.Do, target string) error
}

type menu struct {
	Name, Title string
	Here        bool
}

// Query returns a parameter of the page's address.
func (v *view) Query(name string) string { return v.r.URL.Query().Get(name) }

// Failed reports whether the page may be right when it is loaded again.
func (v *view) Failed() bool {
	return v.Page != "act" && status(v.Error) >= http.StatusInternalServerError
}

// More returns the address of the next page.
func (v *view) More(cursor string) string {
	q := v.r.URL.Query()
	q.Set("cursor", cursor)
	return address(v.Page) + "?" + q.Encode()
}

// First reports whether the address has no cursor.
func (v *view) First() bool { return v.Query("cursor") == "" }

// Here returns the address of this page without a cursor, as the first page of its list.
func (v *view) Here() string {
	q := v.r.URL.Query()
	q.Del("cursor")
	if len(q) == 0 {
		return address(v.Page)
	}
	return address(v.Page) + "?" + q.Encode()
}

func (p *Pages) view(r *http.Request, name, title string) *view {
	v := &view{
		Title: title, Page: name, User: p.c.User(r), Version: p.c.Version, Now: time.Now(), HideArguments: p.c.HideArguments, r: r, may: p.c.May,
	}
	all := pages()
	under := name
	if i := slices.IndexFunc(all, func(one page) bool { return one.name == name }); i >= 0 {
		under = all[i].under
	}
	for _, one := range all {
		if one.under == one.name {
			v.Menu = append(v.Menu, menu{address(one.name), one.title, one.name == under})
		}
	}
	return v
}

// address returns the relative address of a page.
func address(name string) string {
	if name == "overview" {
		return "./"
	}
	return name
}

// show loads a page and writes it. An error of the API is a sentence on the page.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, one *page) {
	v := p.view(r, one.name, one.title)
	rq := &request{Request: r, values: r.URL.Query()}
	data, command, err := one.load(p, rq)
	if r.Context().Err() != nil {
		return // the caller is gone
	}
	if rq.better != "" {
		w.Header().Set("Location", rq.better) // http.Redirect would make it absolute, without the prefix
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	v.Data, v.Command, v.Title = data, command, cmp.Or(rq.title, v.Title)
	if v.Error = inspect.Wrap(err); v.Error != nil && v.Error.Code == inspect.CodeInternal {
		p.c.Logger.WarnContext(r.Context(), "dashboard: page", slog.String("page", one.name), slog.Any("error", err))
	}
	if code := status(v.Error); code == http.StatusNotFound || code == http.StatusBadRequest {
		v.Command = "" // an address may contain anything
	}
	p.write(w, status(v.Error), one.name, v)
}

// status returns the status of a page with an error. A missing part of the system is not an error
// of the page.
func status(e *inspect.Error) int {
	if e == nil {
		return http.StatusOK
	}
	switch e.Code {
	case inspect.CodeNotFound:
		return http.StatusNotFound
	case inspect.CodeInvalid:
		return http.StatusBadRequest
	case inspect.CodeDenied:
		return http.StatusForbidden
	case inspect.CodeConflict:
		return http.StatusConflict
	case inspect.CodeNoConsumer, inspect.CodeUnavailable:
		return http.StatusServiceUnavailable
	case inspect.CodeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// fail writes a page with an error alone.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, status int, e *inspect.Error) {
	title := "Nothing was changed" // act fails with other statuses
	if status == http.StatusNotFound {
		title = "Not found"
	}
	v := p.view(r, "act", title)
	v.Error = e
	p.write(w, status, "act", v)
}

// write executes a template. Nothing is written before it has succeeded.
func (p *Pages) write(w http.ResponseWriter, status int, name string, v *view) {
	var page bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&page, "layout.html", v); err != nil {
		p.c.Logger.Error("dashboard: template", slog.String("page", name), slog.Any("error", err))
		http.Error(w, "The page cannot be shown; the log of the dashboard says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the client may be gone
}

// missing reports whether err says that a part of the system is not given.
func missing(err error) bool { return inspect.CodeOf(err) == inspect.CodeUnsupported }
