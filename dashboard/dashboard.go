package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/dashboard/internal/pages"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/httpinspect"
)

// Limits of a request.
const (
	maxURL  = 8 << 10 // bytes of the path with the query
	maxForm = 1 << 20 // bytes of a body
)

// apiPath is the path of the methods of package httpinspect.
const apiPath = "/api/v1/"

// Dashboard is an http.Handler with the pages and the API. Make one with [New]. Safe for concurrent
// use.
type Dashboard struct {
	c       Config
	pages   *pages.Pages
	handler http.Handler
	delays  *delays
}

// New returns a dashboard. It does no I/O. Close it after use. Returns all problems of c, joined.
func New(c Config) (*Dashboard, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.API = guarded{c.API, c.HideArguments}
	d := &Dashboard{c: c, delays: &delays{now: time.Now}}
	may := func(r *http.Request, do inspect.Do, target string) error { return d.c.may(r, do, target) }
	p, err := pages.New(pages.Config{
		API: c.API, User: func(r *http.Request) string { return callerOf(r.Context()).name }, May: may,
		HideArguments: c.HideArguments, Logger: c.Logger, Version: c.Version,
	})
	if err != nil {
		return nil, err
	}
	d.pages = p
	mux := http.NewServeMux()
	mux.Handle(apiPath, httpinspect.NewHandler(c.API, httpinspect.Config{
		Allow: func(r *http.Request, do inspect.Do, target string) error { return denied(may(r, do, target)) },
		Actor: d.c.actor,
	}))
	mux.Handle("/", p)
	d.handler = http.NewCrossOriginProtection().Handler(mux)
	return d, nil
}

// Close ends the live streams. It does not close Config.API. Idempotent. Returns ctx's error if a
// stream has not ended in time.
func (d *Dashboard) Close(ctx context.Context) error { return d.pages.Close(ctx) }

// callerKey is the key of the caller in the context of a request.
type callerKey struct{}

func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// actor names the caller for the audit log. A caller on this machine, of a dashboard without users,
// may say a name.
func (c *Config) actor(r *http.Request) string {
	if c.Authenticates() {
		return callerOf(r.Context()).name
	}
	return httpinspect.Claimed(r)
}

// ServeHTTP checks a request, identifies the caller, and serves the page or the method.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case !d.c.knows(r.Host):
		refuse(w, http.StatusMisdirectedRequest, "This name is not known here. Add it with --allow-host or Config.AllowedHosts, or call it by localhost.")
		return
	case len(r.URL.RequestURI()) > maxURL:
		refuse(w, http.StatusRequestURITooLong, "The address is too long.")
		return
	case r.ContentLength > maxForm:
		refuse(w, http.StatusRequestEntityTooLarge, "The request is too large.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	who, ok := d.admit(w, r)
	if !ok {
		return
	}
	ctx := context.WithValue(r.Context(), callerKey{}, who)
	if who.name != "" {
		ctx = inspect.WithActor(ctx, who.name)
	}
	d.handler.ServeHTTP(w, r.WithContext(ctx))
}

// admit returns the caller, or answers the request.
func (d *Dashboard) admit(w http.ResponseWriter, r *http.Request) (caller, bool) {
	addr, guesser := remote(r), guesserOf(r)
	if r.Header.Get("Authorization") != "" {
		if left := d.delays.left(guesser); left > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(left/time.Second)+1))
			refuse(w, http.StatusTooManyRequests, "Too many wrong passwords came from this address for this user. Wait, then try again.")
			return caller{}, false
		}
	}
	who, guess, err := d.c.identify(r, strings.HasPrefix(r.URL.Path, apiPath))
	switch {
	case err == nil:
		d.delays.passed(guesser)
		return who, true
	case errors.Is(err, errRemote):
		refuse(w, http.StatusForbidden, "This dashboard has no users, so it answers only this machine. Give it users, tokens or a proxy.")
		return caller{}, false
	}
	if guess {
		d.delays.failed(guesser)
		d.c.Logger.WarnContext(r.Context(), "dashboard: wrong password or token", "address", addr)
	}
	if d.c.Identify == nil && len(d.c.Users) > 0 {
		w.Header().Set("WWW-Authenticate", `Basic realm="Swarmiji", charset="UTF-8"`)
	}
	text := "A name and a password, or a token, are needed."
	if guess {
		text = "The name, the password or the token is wrong."
	}
	refuse(w, http.StatusUnauthorized, text)
	return caller{}, false
}

// refuse answers with a sentence.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may be gone
}

// knows reports whether the dashboard may be called by the name in a Host header.
func (c *Config) knows(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	if a, err := netip.ParseAddr(name); err == nil && a.Unmap().IsLoopback() {
		return true
	}
	return slices.ContainsFunc(c.AllowedHosts, func(a string) bool { return a == "*" || strings.EqualFold(a, name) })
}
